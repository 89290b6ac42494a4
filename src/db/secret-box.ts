import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";

/** Seals values that must be readable again, such as signing secrets, before they are stored. */
export interface SecretBox {
  /** @param context what the value is for; opening under another context fails */
  seal(plaintext: Buffer | string, context: string): Buffer;
  /** @throws Error when the value was sealed with another key or for another context, or was damaged */
  open(sealed: Buffer, context: string): Buffer;
}

/** The context of webhooks' signing secrets. */
export const WEBHOOK_SECRET_CONTEXT = "webhook-secret";

const VERSION = 1;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * AES-256-GCM with a random nonce; a version byte comes first, so that keys can be rotated.
 *
 * @param key 32 bytes
 */
export function createSecretBox(key: Buffer): SecretBox {
  if (key.length !== 32) throw new Error("a secret box needs a key of 32 bytes");
  return {
    seal(plaintext, context) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv("aes-256-gcm", key, nonce).setAAD(Buffer.from(context));
      const sealed = Buffer.concat([cipher.update(plaintext), cipher.final()]);
      return Buffer.concat([Buffer.of(VERSION), nonce, cipher.getAuthTag(), sealed]);
    },
    open(sealed, context) {
      if (sealed[0] !== VERSION || sealed.length < 1 + NONCE_BYTES + TAG_BYTES) {
        throw new Error("a stored secret is damaged or from a later version of the service");
      }
      const nonce = sealed.subarray(1, 1 + NONCE_BYTES);
      const tag = sealed.subarray(1 + NONCE_BYTES, 1 + NONCE_BYTES + TAG_BYTES);
      const decipher = createDecipheriv("aes-256-gcm", key, nonce)
        .setAAD(Buffer.from(context))
        .setAuthTag(tag);
      try {
        return Buffer.concat([
          decipher.update(sealed.subarray(1 + NONCE_BYTES + TAG_BYTES)),
          decipher.final(),
        ]);
      } catch {
        throw new Error(
          "a stored secret cannot be opened: it was sealed with another SECRET_KEY, or it is damaged",
        );
      }
    },
  };
}
