import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { stateNotFit } from "../calls/errors/index.ts";

/**
 * The context that a sealed value is bound to. A value of one row also names the row, so that it cannot be moved to
 * another.
 */
export type SecretContext = string | { purpose: string; row: string };

/** Encrypts values that must be readable again, such as signing secrets, before they are stored. */
export interface SecretBox {
  /** Encrypts with the current key. */
  seal(plaintext: Buffer | string, context: SecretContext): Buffer;
  /** @throws UnopenableError if no key fits, the context differs, or the value is damaged */
  open(sealed: Buffer, context: SecretContext): Buffer;
  /**
   * Re-encrypts a value with the current key and bound to its row, if it was sealed with a previous key or without
   * its row; otherwise returns null.
   *
   * @throws UnopenableError as `open` does
   */
  reseal(sealed: Buffer, context: SecretContext): Buffer | null;
}

/** Thrown for a sealed value that this process cannot decrypt. The message reveals nothing about the value. */
export class UnopenableError extends Error {
  override name = "UnopenableError";
}

/**
 * Opens values for a caller.
 *
 * @param what what the values are, for the error: `a signing secret of webhook 7`
 * @param remedy what to do if the key is lost, for the error. Defaults to nothing
 * @throws DomainError FAILED_PRECONDITION if no key of this process decrypts one of them
 */
export function openFor<T>(what: string, open: () => T, remedy = ""): T {
  try {
    return open();
  } catch (error) {
    if (!(error instanceof UnopenableError)) throw error;
    throw stateNotFit(
      `${what} can be decrypted with neither SECRET_KEY nor SECRET_KEY_PREVIOUS, or was stored for another webhook; give the service the key it was encrypted with${remedy}`,
    );
  }
}

/** The opened value; undefined if no key of this process opens it. */
export function tryOpen(box: SecretBox, sealed: Buffer, context: SecretContext): Buffer | undefined {
  try {
    return box.open(sealed, context);
  } catch (error) {
    if (error instanceof UnopenableError) return undefined;
    throw error;
  }
}

/** The purpose of webhooks' signing secrets. Earlier versions of the service bound them to it alone. */
export const WEBHOOK_SECRET_PURPOSE = "webhook-secret";

/** The context of a webhook's signing secrets. */
export function webhookSecretContext(webhookId: bigint): SecretContext {
  return { purpose: WEBHOOK_SECRET_PURPOSE, row: String(webhookId) };
}

/** The context of the private keys that sign a webhook's requests. */
export function keyPairContext(webhookId: bigint): SecretContext {
  return { purpose: "webhook-key-pair", row: String(webhookId) };
}

/** The version byte: bound to a purpose, or to a purpose and a row. */
const FOR_PURPOSE = 1;
const FOR_ROW = 2;
/** The length of a nonce, in bytes. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * AES-256-GCM with a random nonce. The first byte is a version, so that the format can change.
 *
 * @param key the current key, 32 bytes, used for encryption
 * @param previous keys used for decryption only. All keys are tried
 */
export function createSecretBox(key: Buffer, previous: readonly Buffer[] = []): SecretBox {
  if ([key, ...previous].some(({ length }) => length !== 32)) {
    throw new Error("a key of the secret box has the wrong length; each must have 32 bytes");
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
      `a stored secret (${nameOf(context)}) cannot be opened: it was encrypted with a key that is neither SECRET_KEY nor in SECRET_KEY_PREVIOUS, or for another webhook, or it is damaged; add that key to SECRET_KEY_PREVIOUS`,
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

/** Null if it was sealed with another key or for another context, or is damaged. */
function openWith(key: Buffer, sealed: Buffer, context: SecretContext): Buffer | null {
  const [version] = sealed;
  if ((version !== FOR_PURPOSE && version !== FOR_ROW) || sealed.length < 1 + NONCE_BYTES + TAG_BYTES) {
    throw new UnopenableError(
      "a stored secret is damaged or was written by a later version of the service; start that version",
    );
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

/** The associated data: authenticated but not encrypted. */
function authenticated(version: number, context: SecretContext): Buffer {
  if (typeof context === "string") return Buffer.from(context);
  return Buffer.from(version === FOR_ROW ? `${context.purpose}:${context.row}` : context.purpose);
}

function nameOf(context: SecretContext): string {
  return typeof context === "string" ? context : `${context.purpose} ${context.row}`;
}
