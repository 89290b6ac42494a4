import * as zlib from "node:zlib";

type Decompress = (bytes: Buffer, options: { maxOutputLength: number; finishFlush: number }) => Buffer;

/** The content codings of RFC 9110, 8.4.1. Some servers send `deflate` without the header of zlib. */
const CODINGS: Record<string, Decompress[]> = {
  gzip: [zlib.gunzipSync],
  deflate: [zlib.inflateSync, zlib.inflateRawSync],
  br: [zlib.brotliDecompressSync],
};
/** The number of bytes beyond those wanted that are decompressed, so that the first part of a longer text is found. */
const SPARE_BYTES = 16_384;
/**
 * The processor time beyond which a decompression of brotli is slow, in milliseconds, and the pause after it, in such times: 80 bytes
 * occupy the thread for 28 ms, because a decoder fills its window of 16 MiB before it returns the first byte.
 */
const SLOW_MS = 5;
const PAUSE_PER_SLOW = 50;

let brotliPausedUntil = 0;

/** The coding of a response, in lower case; empty if it has none. @param header the value of Content-Encoding */
export function contentCoding(header = ""): string {
  const coding = header.trim().toLowerCase();
  if (coding === "identity") return "";
  return coding === "x-gzip" ? "gzip" : coding;
}

/**
 * Decompresses at most the first bytes of a body, which may be cut off, in bounded time and memory.
 *
 * @param coding as `contentCoding` returns it; empty returns the bytes
 * @param maxBytes the maximum size of the result
 * @returns undefined if the coding is unknown, the bytes are not valid in it or expand too much; of brotli also right after slow ones
 */
export function decompressed(coding: string, bytes: Buffer, maxBytes: number): Buffer | undefined {
  if (coding === "") return bytes.subarray(0, maxBytes);
  if (coding !== "br") return firstPart(coding, bytes, maxBytes);
  const now = performance.now();
  if (now < brotliPausedUntil) return undefined;
  const before = process.threadCpuUsage();
  const plain = firstPart(coding, bytes, maxBytes);
  const tookMs = process.threadCpuUsage(before).user / 1_000;
  if (tookMs > SLOW_MS) brotliPausedUntil = now + PAUSE_PER_SLOW * tookMs;
  return plain;
}

function firstPart(coding: string, bytes: Buffer, maxBytes: number): Buffer | undefined {
  const isBrotli = coding === "br";
  // Without these, a body that is cut off is an error.
  const finishFlush = isBrotli ? zlib.constants.BROTLI_OPERATION_FLUSH : zlib.constants.Z_SYNC_FLUSH;
  const options = { finishFlush, maxOutputLength: maxBytes + SPARE_BYTES };
  for (const decompress of Object.hasOwn(CODINGS, coding) ? (CODINGS[coding] ?? []) : []) {
    // Half of a gzip body expands to half of the text. Half of a brotli body may expand to all of it.
    for (let { length } = bytes; length > 0; length = isBrotli ? 0 : length >> 1) {
      try {
        const plain = decompress(bytes.subarray(0, length), options);
        if (plain.length > 0) return plain.subarray(0, maxBytes);
        break;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ERR_BUFFER_TOO_LARGE") break;
      }
    }
  }
  return undefined;
}
