import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";

/**
 * What a sealed value is for; it opens for nothing else. A value of one row names the row too, so that it cannot be
 * moved to another.
 */
export type SecretContext = string | { purpose: string; row: string };

/** Seals values that must be readable again, such as signing secrets, before they are stored. */
export interface SecretBox {
  /** Seals under the current key. */
  seal(plaintext: Buffer | string, context: SecretContext): Buffer;
  /** @throws UnopenableError when no key of the box opens the value, it is for another context, or it is damaged */
  open(sealed: Buffer, context: SecretContext): Buffer;
  /**
   * The value under the current key and bound to its row, when it was sealed under a previous key or without its row;
   * null when nothing is to be done.
   *
   * @throws UnopenableError as `open`
   */
  reseal(sealed: Buffer, context: SecretContext): Buffer | null;
}

/** A sealed value that this process cannot read; the message says nothing of the value. */
export class UnopenableError extends Error {
  override name = "UnopenableError";
}

/** The purpose of webhooks' signing secrets; earlier versions of the service sealed them for that alone. */
export const WEBHOOK_SECRET_PURPOSE = "webhook-secret";

/** The context of a webhook's signing secrets. */
export function webhookSecretContext(webhookId: bigint): SecretContext {
  return { purpose: WEBHOOK_SECRET_PURPOSE, row: String(webhookId) };
}

/** The first byte: sealed for a purpose, and sealed for a purpose and a row. */
const FOR_PURPOSE = 1;
const FOR_ROW = 2;
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

  function seal(plaintext: Buffer | string, context: SecretContext): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const version = versionFor(context);
    const cipher = createCipheriv("aes-256-gcm", key, nonce).setAAD(authenticated(version, context));
    const sealed = Buffer.concat([cipher.update(plaintext), cipher.final()]);
    return Buffer.concat([Buffer.of(version), nonce, cipher.getAuthTag(), sealed]);
  }

  function openWithPrevious(sealed: Buffer, context: SecretContext): Buffer {
    for (const each of previous) {
      const opened = openWith(each, sealed, context);
      if (opened) return opened;
    }
    throw new UnopenableError(
      `a stored secret (${nameOf(context)}) cannot be opened: it was sealed with another SECRET_KEY, which SECRET_KEY_PREVIOUS does not name either, or for another webhook, or it is damaged`,
    );
  }

  return {
    seal,
    open: (sealed, context) => openWith(key, sealed, context) ?? openWithPrevious(sealed, context),
    reseal(sealed, context) {
      const opened = openWith(key, sealed, context);
      if (opened && sealed[0] === versionFor(context)) return null;
      return seal(opened ?? openWithPrevious(sealed, context), context);
    },
  };
}

/** Null when it was sealed with another key or for another context, or was damaged. */
function openWith(key: Buffer, sealed: Buffer, context: SecretContext): Buffer | null {
  const [version] = sealed;
  if ((version !== FOR_PURPOSE && version !== FOR_ROW) || sealed.length < 1 + NONCE_BYTES + TAG_BYTES) {
    throw new UnopenableError("a stored secret is damaged or from a later version of the service");
  }
  const nonce = sealed.subarray(1, 1 + NONCE_BYTES);
  const tag = sealed.subarray(1 + NONCE_BYTES, 1 + NONCE_BYTES + TAG_BYTES);
  const decipher = createDecipheriv("aes-256-gcm", key, nonce)
    .setAAD(authenticated(version, context))
    .setAuthTag(tag);
  try {
    return Buffer.concat([decipher.update(sealed.subarray(1 + NONCE_BYTES + TAG_BYTES)), decipher.final()]);
  } catch {
    return null;
  }
}

function versionFor(context: SecretContext): number {
  return typeof context === "string" ? FOR_PURPOSE : FOR_ROW;
}

/** What is authenticated beside the value. */
function authenticated(version: number, context: SecretContext): Buffer {
  if (typeof context === "string") return Buffer.from(context);
  return Buffer.from(version === FOR_ROW ? `${context.purpose}:${context.row}` : context.purpose);
}

function nameOf(context: SecretContext): string {
  return typeof context === "string" ? context : `${context.purpose} ${context.row}`;
}
