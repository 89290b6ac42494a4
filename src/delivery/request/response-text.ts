import { isUtf8 } from "node:buffer";
import { contentCoding, decompressed } from "../../lib/egress/index.ts";

/** The maximum size of the response excerpt stored with the attempt, in bytes. */
const RESPONSE_EXCERPT_BYTES = 1_024;
/** The text that replaces a secret in a recorded response. */
const HIDDEN = "[hidden]";
/** The labels of character encodings that are decoded beside UTF-8. Each has one byte per character, so that no secret changes. */
const SINGLE_BYTE = /charset="?(latin1|iso-8859-(?:1[03-6]|[1-8])|windows-125[0-8])\b/i;
/** Controls that text does not contain: all but white space. */
const NO_TEXT = /(?!\s)\p{Cc}/u;

/** The first part of a response body, and what its headers say about it. */
export interface ResponseExcerpt {
  /** The start of the body as received: of `excerptBytes`. */
  bytes: Buffer;
  /** The size of the whole body as received, in bytes. */
  received: number;
  contentEncoding: string | undefined;
  contentType: string | undefined;
}

/**
 * The number of bytes of a body to keep. A secret that begins in the excerpt is read to its end, so that it is recognized.
 *
 * @param hidden the secrets that a receiver may repeat, longest first
 */
export function excerptBytes(hidden: readonly string[]): number {
  return RESPONSE_EXCERPT_BYTES + (hidden[0]?.length ?? 0);
}

/**
 * The start of a response as text, without secrets: decompressed, and in the character encoding that its Content-Type names, else UTF-8 or
 * Latin-1. `gzip, 812 bytes` if it cannot be decompressed. U+FFFD replaces bytes that are no text, and NUL, which PostgreSQL cannot store.
 */
export function responseText(excerpt: ResponseExcerpt, hidden: readonly string[]): string {
  const { received, contentEncoding, contentType } = excerpt;
  const coding = contentCoding(contentEncoding);
  const most = excerptBytes(hidden);
  const bytes = decompressed(coding, excerpt.bytes, most);
  // A receiver may repeat a secret anywhere.
  if (!bytes) return `${withoutSecrets(coding, hidden).slice(0, 40)}, ${received} bytes`;
  const isCut = bytes.length === most || received > excerpt.bytes.length;
  const text = plainText(bytes, hidden, { contentType, isCut }).replaceAll("\0", "\uFFFD");
  const utf8 = Buffer.from(text);
  if (utf8.length <= RESPONSE_EXCERPT_BYTES) return text;
  return new TextDecoder().decode(utf8.subarray(0, RESPONSE_EXCERPT_BYTES), { stream: true });
}

/** A header that a receiver sent, without secrets. @param value each character is a byte */
export function headerText(value: string, hidden: readonly string[]): string {
  return plainText(Buffer.from(value, "latin1"), hidden).replaceAll("\0", "\uFFFD");
}

/** What is known about bytes that may be text. */
interface TextFacts {
  contentType?: string | undefined;
  /** Whether the last character may be incomplete. */
  isCut?: boolean;
}

/** Secrets are hidden in the bytes, of which a decoder may drop some, and in the text, which may have been Latin-1. */
function plainText(bytes: Buffer, hidden: readonly string[], facts: TextFacts = {}): string {
  if (hidden.length === 0) return decoded(bytes, facts);
  // In latin1, each byte is a character, so that no byte is lost.
  const kept = Buffer.from(withoutSecrets(bytes.toString("latin1"), hidden), "latin1");
  return withoutSecrets(decoded(kept, facts), hidden);
}

function decoded(bytes: Buffer, { contentType = "", isCut = false }: TextFacts): string {
  const [, label] = SINGLE_BYTE.exec(contentType) ?? [];
  if (label !== undefined) return new TextDecoder(label).decode(bytes);
  const cuts = isCut ? [0, 1, 2, 3] : [0];
  const text = bytes.toString();
  if (cuts.some((cut) => isUtf8(bytes.subarray(0, bytes.length - cut))) || NO_TEXT.test(text)) return text;
  return new TextDecoder("latin1").decode(bytes);
}

/** Replaces all secrets in a text that a receiver sent. */
function withoutSecrets(received: string, hidden: readonly string[]): string {
  return hidden.reduce((left, secret) => left.replaceAll(secret, HIDDEN), received);
}
