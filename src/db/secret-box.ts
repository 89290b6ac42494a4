import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";

/** Seals values that must be readable again, such as signing secrets, before they are stored. */
export interface SecretBox {
  /**
   * Seals under the current key.
   *
   * @param context what the value is for; opening under another context fails
   */
  seal(plaintext: Buffer | string, context: string): Buffer;
  /** @throws UnopenableError when no key of the box opens the value, it is for another context, or it is damaged */
  open(sealed: Buffer, context: string): Buffer;
  /**
   * The value under the current key when it was sealed under a previous one; null when nothing is to be done.
   *
   * @throws UnopenableError as `open`
   */
  reseal(sealed: Buffer, context: string): Buffer | null;
}

/** A sealed value that this process cannot read; the message says nothing of the value. */
export class UnopenableError extends Error {
  override name = "UnopenableError";
}

/** The context of webhooks' signing secrets. */
export const WEBHOOK_SECRET_CONTEXT = "webhook-secret";

const VERSION = 1;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * AES-256-GCM with a random nonce; a version byte comes first, so that the form can change.
 *
 * @param key 32 bytes: the current key, which seals
 * @param previous keys that only open; which one sealed a value is found by trying
 */
export function createSecretBox(key: Buffer, previous: readonly Buffer[] = []): SecretBox {
  if ([key, ...previous].some(({ length }) => length !== 32)) {
    throw new Error("a secret box needs keys of 32 bytes");
  }

  function seal(plaintext: Buffer | string, context: string): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv("aes-256-gcm", key, nonce).setAAD(Buffer.from(context));
    const sealed = Buffer.concat([cipher.update(plaintext), cipher.final()]);
    return Buffer.concat([Buffer.of(VERSION), nonce, cipher.getAuthTag(), sealed]);
  }

  function openWithPrevious(sealed: Buffer, context: string): Buffer {
    for (const each of previous) {
      const opened = openWith(each, sealed, context);
      if (opened) return opened;
    }
    throw new UnopenableError(
      "a stored secret cannot be opened: it was sealed with another SECRET_KEY, which SECRET_KEY_PREVIOUS does not name either, or it is damaged",
    );
  }

  return {
    seal,
    open: (sealed, context) => openWith(key, sealed, context) ?? openWithPrevious(sealed, context),
    reseal: (sealed, context) =>
      openWith(key, sealed, context) ? null : seal(openWithPrevious(sealed, context), context),
  };
}

/** Null when it was sealed with another key or for another context, or was damaged. */
function openWith(key: Buffer, sealed: Buffer, context: string): Buffer | null {
  if (sealed[0] !== VERSION || sealed.length < 1 + NONCE_BYTES + TAG_BYTES) {
    throw new UnopenableError("a stored secret is damaged or from a later version of the service");
  }
  const nonce = sealed.subarray(1, 1 + NONCE_BYTES);
  const tag = sealed.subarray(1 + NONCE_BYTES, 1 + NONCE_BYTES + TAG_BYTES);
  const decipher = createDecipheriv("aes-256-gcm", key, nonce).setAAD(Buffer.from(context)).setAuthTag(tag);
  try {
    return Buffer.concat([decipher.update(sealed.subarray(1 + NONCE_BYTES + TAG_BYTES)), decipher.final()]);
  } catch {
    return null;
  }
}
