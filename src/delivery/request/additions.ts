import type { OAuth2Client } from "../../contract/target-rules.ts";
import { type TlsIdentity, tlsIdentity } from "../../lib/egress/index.ts";
import {
  type ClaimedWebhook,
  headersOfSettings,
  openRequestSettings,
  type SecretBox,
  UnopenableError,
} from "../../webhooks/index.ts";
import type { AccessTokens } from "../oauth2/access-tokens.ts";
import { type ByOwner, ofOwner } from "./guards.ts";
import { NotBuiltError } from "./not-built.ts";

/** What a webhook's sealed settings add to a request. */
export interface Additions {
  /** Header names and values, alternating. */
  headers: readonly string[];
  /** Secrets in the headers, longest first. In the recorded response, they are replaced with `[hidden]`. */
  hidden?: readonly string[];
  /** Must be called if the receiver answers 401, so that the next attempt fetches another access token. */
  onUnauthorized?: () => void;
  /** The webhook's own client certificate or authorities. */
  tls?: TlsIdentity | undefined;
}

export const NO_ADDITIONS: Additions = { headers: [] };

/**
 * Reads a webhook's sealed settings. Returns a promise if an access token must be fetched first.
 *
 * @throws NotBuiltError if this process cannot decrypt them
 * @throws TokenError by rejecting
 */
export type ReadAdditions = (
  webhook: Pick<ClaimedWebhook, "id" | "customer">,
  sealed: Buffer,
) => Additions | Promise<Additions>;

/**
 * Creates the reader of sealed settings. Deliveries share the buffer of a webhook until its row changes, so the settings are
 * decrypted once per change.
 */
export function createAdditions(box: SecretBox, tokensByOwner: ByOwner<AccessTokens>): ReadAdditions {
  const known = new WeakMap<Buffer, Opened>();
  return ({ id, customer }, sealed) => {
    const opened = known.getOrInsertComputed(sealed, () => open(box, id, sealed));
    const { additions, oauth2 } = opened;
    if (oauth2 === null) return additions;
    const tokens = ofOwner(tokensByOwner, customer);
    /** Returns the same object for all deliveries until the token changes. */
    const withToken = (token: string) => {
      if (opened.latest?.token !== token) {
        const header = bearer(token);
        const headers = [...additions.headers, ...header];
        const hidden = [...additions.hidden, ...secretsIn(header)].sort(longestFirst);
        const onUnauthorized = () => tokens.refused(oauth2, token);
        opened.latest = { token, additions: { ...additions, headers, hidden, onUnauthorized } };
      }
      return opened.latest.additions;
    };
    const token = tokens.get(oauth2);
    return typeof token === "string" ? withToken(token) : token.then(withToken);
  };
}

/** The opened settings of a webhook. */
interface Opened {
  additions: Additions & { hidden: readonly string[] };
  oauth2: OAuth2Client | null;
  /** The additions with the latest access token. */
  latest?: { token: string; additions: Additions };
}

/** The header of an access token: its name and value. */
export function bearer(token: string): [string, string] {
  return ["Authorization", `Bearer ${token}`];
}

/** The minimum length of a hidden value, in characters. Hiding shorter ones, such as `1`, would garble responses. */
const MIN_HIDDEN = 8;

/**
 * The secrets in headers, longest first: header values, credentials without their scheme, and the decoded user and password of Basic
 * authentication; each also as JSON escapes it. Omits secrets shorter than MIN_HIDDEN.
 *
 * @param headers names and values, alternating; each character of a value is a byte
 */
export function secretsIn(headers: readonly string[]): string[] {
  const values = headers.filter((_, index) => index % 2 === 1).flatMap(partsOf);
  const spellings = values.flatMap(readings).flatMap((value) => {
    const escaped = JSON.stringify(value).slice(1, -1);
    const inAscii = escaped.replaceAll(
      /[^ -~]/g,
      (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`,
    );
    // Some servers escape slashes, too.
    return [value, escaped, escaped.replaceAll("/", "\\/"), inAscii, inAscii.replaceAll("/", "\\/")];
  });
  const long = spellings.filter(({ length }) => length >= MIN_HIDDEN);
  return [...new Set(long)].sort(longestFirst);
}

/** A value as bytes, as the text of these, and as the bytes of a server that took them for Latin-1. */
function readings(value: string): string[] {
  const text = Buffer.from(value, "latin1").toString();
  return text === value ? [value] : [value, text, Buffer.from(value).toString("latin1")];
}

/** Longer secrets are replaced first: a longer secret may contain a shorter one. */
const longestFirst = (a: string, b: string) => b.length - a.length;

/** A header's value, and the secrets in it if it is of the scheme Basic or Bearer. */
function partsOf(value: string): string[] {
  const [, scheme = "", credentials] = /^(basic|bearer) +(.+)$/i.exec(value) ?? [];
  if (credentials === undefined) return [value];
  if (scheme.toLowerCase() === "bearer") return [value, credentials];
  const user = Buffer.from(credentials, "base64").toString("latin1");
  return [value, credentials, user, user.slice(user.indexOf(":") + 1)];
}

function open(box: SecretBox, webhookId: bigint, sealed: Buffer): Opened {
  try {
    const settings = openRequestSettings(box, webhookId, sealed);
    const { authentication } = settings;
    const headers = headersOfSettings(settings);
    const additions = { headers, hidden: secretsIn(headers), tls: tlsIdentity(settings.tls) };
    return { additions, oauth2: authentication?.kind === "oauth2" ? authentication.client : null };
  } catch (cause) {
    if (!(cause instanceof UnopenableError)) throw cause;
    throw new NotBuiltError(
      "the webhook's headers and credentials cannot be decrypted: set them again with SetWebhookRequestSettings, or see the service's log",
      { cause },
    );
  }
}
