import { createHmac, createSecretKey, type KeyObject, sign as signWith } from "node:crypto";
import { type SecondSignature, secondSignatureHeaders } from "../../contract/webhooks/second-signature.ts";
import {
  keyPairContext,
  privateKeyOf,
  type SealedSecret,
  type SecretBox,
  webhookSecretContext,
} from "../../webhooks/index.ts";

/** The headers of Standard Webhooks. */
export const SIGNATURE_HEADERS = ["webhook-id", "webhook-timestamp", "webhook-signature"] as const;
export type SignatureHeaders = Record<(typeof SIGNATURE_HEADERS)[number], string>;

/**
 * Signs bodies with a webhook's sealed secrets and key pairs, except expired ones. Caches opened secrets.
 *
 * @param second the webhook's second signature. Its headers are returned as `second`: names and values, alternating. Defaults to none
 */
export type Signer = (
  secrets: readonly SealedSecret[],
  id: string,
  at: Date,
  body: string,
  second?: SecondSignature,
) => SignatureHeaders & { second?: string[] };

/**
 * Creates a signer for Standard Webhooks: `v1`, HMAC-SHA256 over id, timestamp and body, and `v1a`, ed25519 over the
 * same, both in base64. The header has one signature per secret, newest first, then one per key pair, separated by
 * spaces. Uses Node's HMAC: the JavaScript one of the standardwebhooks package takes four times as long. Tests verify
 * signatures with that package.
 *
 * @param box opens the stored secrets
 */
export function createSigner(box: SecretBox): Signer {
  /** Opened secrets by their sealed buffer, which deliveries share until the webhook's row changes. */
  const opened = new WeakMap<Buffer, KeyObject>();

  const key = ({ webhookId, sealed, keyPair }: SealedSecret) =>
    // A KeyObject is reused. From raw bytes, Node would create one for each signature, which takes five times as long.
    opened.getOrInsertComputed(sealed, () =>
      keyPair
        ? privateKeyOf(box.open(sealed, keyPairContext(webhookId)))
        : createSecretKey(box.open(sealed, webhookSecretContext(webhookId))),
    );

  return (secrets, id, at, body, second) => {
    const timestamp = String(Math.floor(at.getTime() / 1_000));
    const content = `${id}.${timestamp}.${body}`;
    let signature = "";
    for (const secret of secrets) {
      if (secret.expires !== null && secret.expires <= at) continue;
      const made = secret.keyPair
        ? `v1a,${signWith(null, Buffer.from(content), key(secret)).toString("base64")}`
        : `v1,${createHmac("sha256", key(secret)).update(content).digest("base64")}`;
      signature += signature === "" ? made : ` ${made}`;
    }
    const first = { "webhook-id": id, "webhook-timestamp": timestamp, "webhook-signature": signature };
    if (!second?.signatureForm) return first;
    const keys = secrets
      .filter(({ keyPair, expires }) => !keyPair && (expires === null || expires > at))
      .map(key);
    return { ...first, second: secondSignature(second, keys, first, body) };
  };
}

/**
 * The headers of a second signature: names and values, alternating.
 *
 * @param keys the valid secrets, newest first
 * @param first the signature of Standard Webhooks of the same attempt
 */
function secondSignature(
  second: SecondSignature,
  keys: readonly KeyObject[],
  first: SignatureHeaders,
  body: string,
): string[] {
  const names = secondSignatureHeaders(second);
  if (second.signatureForm === "svix")
    return SIGNATURE_HEADERS.flatMap((name, n) => [names[n] as string, first[name]]);
  const timestamp = first["webhook-timestamp"];
  const isHex = second.signatureForm === "hex";
  const signed = isHex ? body : `${timestamp}.${body}`;
  const hexes = keys.map((secret) => createHmac("sha256", secret).update(signed).digest("hex"));
  const value = isHex
    ? `${second.signaturePrefix ?? ""}${hexes[0]}`
    : [`t=${timestamp}`, ...hexes.map((hex) => `v1=${hex}`)].join();
  return [names[0] as string, value];
}
