import { headersOfSettings, openRequestSettings } from "../../db/webhooks/request-settings.ts";
import { type SecretBox, UnopenableError } from "../../db/webhooks/secret-box.ts";

/** The headers of a webhook's sealed settings: names and values in turn. */
export type SettingsHeaders = (webhookId: bigint, sealed: Buffer) => readonly string[];

/** Thrown for settings that this process cannot decrypt. */
export class UnopenableSettingsError extends Error {
  override name = "UnopenableSettingsError";
}

/**
 * Creates the reader of sealed settings. Deliveries of one claim share a webhook's buffer, so each change of the
 * webhook is decrypted once.
 */
export function createSettingsHeaders(box: SecretBox): SettingsHeaders {
  const known = new WeakMap<Buffer, readonly string[]>();
  return (webhookId, sealed) => {
    let headers = known.get(sealed);
    if (!headers) {
      headers = headersOf(box, webhookId, sealed);
      known.set(sealed, headers);
    }
    return headers;
  };
}

function headersOf(box: SecretBox, webhookId: bigint, sealed: Buffer): readonly string[] {
  try {
    return headersOfSettings(openRequestSettings(box, webhookId, sealed));
  } catch (cause) {
    if (!(cause instanceof UnopenableError)) throw cause;
    throw new UnopenableSettingsError(
      "the webhook's headers and credentials cannot be decrypted: set them again with SetWebhookRequestSettings, or see the service's log",
      { cause },
    );
  }
}
