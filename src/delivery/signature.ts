import { Webhook } from "standardwebhooks";
import type { SecretBox } from "../db/secret-box.ts";
import { WEBHOOK_SECRET_CONTEXT } from "../db/secret-box.ts";

/** The headers of Standard Webhooks. */
export type SignatureHeaders = {
  "webhook-id": string;
  "webhook-timestamp": string;
  "webhook-signature": string;
};

/** Signs bodies with a webhook's sealed secret; opened secrets are kept for the next delivery. */
export type Signer = (sealedSecret: Buffer, id: string, at: Date, body: string) => SignatureHeaders;

/** Opened secrets kept in memory, at most. */
const CACHE_SIZE = 10_000;

/** @param box opens the secrets as they are stored */
export function createSigner(box: SecretBox): Signer {
  const opened = new Map<string, Webhook>();

  function webhook(sealed: Buffer): Webhook {
    const key = sealed.toString("latin1");
    const known = opened.get(key);
    if (known) return known;
    if (opened.size >= CACHE_SIZE) opened.clear();
    const fresh = new Webhook(box.open(sealed, WEBHOOK_SECRET_CONTEXT).toString("base64"));
    opened.set(key, fresh);
    return fresh;
  }

  return (sealed, id, at, body) => ({
    "webhook-id": id,
    "webhook-timestamp": String(Math.floor(at.getTime() / 1_000)),
    "webhook-signature": webhook(sealed).sign(id, at, body),
  });
}
