import { headersOfSettings, openRequestSettings } from "../../db/webhooks/request-settings.ts";
import { type SecretBox, UnopenableError } from "../../db/webhooks/secret-box.ts";
import { type TlsIdentity, tlsIdentity } from "../http/tls-identity.ts";
import type { AccessTokens } from "../oauth2/access-tokens.ts";
import { NotBuiltError } from "./not-built.ts";

/** The additions of a webhook's settings to a request. */
export interface Additions {
  /** Names and values in turn. */
  headers: readonly string[];
  /** To be called if the receiver answers 401. */
  onUnauthorized?: () => void;
  /** The webhook's own certificates. */
  tls?: TlsIdentity;
}

/** No additions. */
export const NO_ADDITIONS: Additions = { headers: [] };

/**
 * Reads a webhook's sealed settings. Returns a promise if an access token must be fetched first.
 *
 * @throws NotBuiltError if this process cannot decrypt them
 * @throws TokenError by rejecting
 */
export type ReadAdditions = (webhookId: bigint, sealed: Buffer) => Additions | Promise<Additions>;

/**
 * Creates the reader of sealed settings. Deliveries of one claim share a webhook's buffer, so each change of the
 * webhook is decrypted once.
 */
export function createAdditions(box: SecretBox, tokens: AccessTokens): ReadAdditions {
  const known = new WeakMap<Buffer, ReturnType<typeof open>>();
  return (webhookId, sealed) => {
    const { additions, oauth2 } = known.getOrInsertComputed(sealed, () => open(box, webhookId, sealed));
    if (oauth2 === null) return additions;
    const withToken = (token: string) => ({
      ...additions,
      headers: [...additions.headers, ...bearer(token)],
      onUnauthorized: () => tokens.refused(oauth2, token),
    });
    const token = tokens.get(oauth2);
    return typeof token === "string" ? withToken(token) : token.then(withToken);
  };
}

/** The header of an access token: its name and value. */
export function bearer(token: string): [string, string] {
  return ["Authorization", `Bearer ${token}`];
}

/** The opened settings of a webhook. */
function open(box: SecretBox, webhookId: bigint, sealed: Buffer) {
  try {
    const settings = openRequestSettings(box, webhookId, sealed);
    const { authentication } = settings;
    const tls = tlsIdentity(settings.tls);
    const additions: Additions = { headers: headersOfSettings(settings), ...(tls ? { tls } : {}) };
    return { additions, oauth2: authentication?.kind === "oauth2" ? authentication.client : null };
  } catch (cause) {
    if (!(cause instanceof UnopenableError)) throw cause;
    throw new NotBuiltError(
      "the webhook's headers and credentials cannot be decrypted: set them again with SetWebhookRequestSettings, or see the service's log",
      { cause },
    );
  }
}
