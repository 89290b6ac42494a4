import { promisify } from "node:util";
import * as zlib from "node:zlib";
import { DomainError } from "../../contract/errors.ts";
import { messageTooLarge } from "./message-limits.ts";

type Decompress = (bytes: Uint8Array, options: { maxOutputLength: number }) => Promise<Buffer>;

const DECOMPRESS: Readonly<Record<string, Decompress>> = {
  gzip: promisify<Uint8Array, zlib.ZlibOptions, Buffer>(zlib.gunzip),
  br: promisify<Uint8Array, zlib.BrotliOptions, Buffer>(zlib.brotliDecompress),
  deflate: promisify<Uint8Array, zlib.ZlibOptions, Buffer>(zlib.inflate),
};

/** The supported encodings of request messages. */
export const REQUEST_ENCODINGS: readonly string[] = Object.keys(DECOMPRESS);

/**
 * Decompresses one message.
 *
 * @param encoding one of REQUEST_ENCODINGS
 * @throws DomainError RESOURCE_EXHAUSTED if the result exceeds `maxBytes`, without decompressing further;
 *   INVALID_ARGUMENT if the bytes are not valid in the encoding
 */
export async function decompress(encoding: string, bytes: Uint8Array, maxBytes: number): Promise<Uint8Array> {
  // An empty message may be sent without a compressed frame.
  if (bytes.byteLength === 0) return bytes;
  try {
    return await (DECOMPRESS[encoding] as Decompress)(bytes, { maxOutputLength: maxBytes });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ERR_BUFFER_TOO_LARGE") throw messageTooLarge(maxBytes);
    throw new DomainError(
      "REQUEST_INVALID",
      `the message is not valid ${encoding}; send it in the encoding that the header names, or uncompressed`,
    );
  }
}
