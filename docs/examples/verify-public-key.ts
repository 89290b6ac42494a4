// Verifies a delivery with the webhook's public key from GetWebhookKeyPairs: whpk_…
import { createPublicKey, verify } from "node:crypto";

/** The age, in seconds, from which a delivery is refused. */
const TOLERANCE_S = 300;

/**
 * Whether the service sent this body within the last five minutes.
 *
 * @param publicKey `whpk_…`
 * @param headers with names in lower case
 * @param body the raw body, not parsed
 */
export function isAuthentic(
  publicKey: string,
  headers: Record<string, string | string[] | undefined>,
  body: string,
): boolean {
  const x = Buffer.from(publicKey.replace(/^whpk_/, ""), "base64").toString("base64url");
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  const timestamp = String(headers["webhook-timestamp"]);
  const age = Date.now() / 1_000 - Number(timestamp);
  // Also refuses a timestamp that is no number.
  if (!(Math.abs(age) <= TOLERANCE_S)) return false;
  const signed = Buffer.from(`${headers["webhook-id"]}.${timestamp}.${body}`);
  return String(headers["webhook-signature"])
    .split(" ")
    .filter((each) => each.startsWith("v1a,"))
    .some((each) => verify(null, signed, key, Buffer.from(each.slice("v1a,".length), "base64")));
}
