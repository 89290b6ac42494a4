import { promisify } from "node:util";
import * as zlib from "node:zlib";
import type { ConnectRouterOptions } from "@connectrpc/connect";
import type { Compression } from "@connectrpc/connect/protocol";
import { compressionGzip } from "@connectrpc/connect-node";
import compress from "@fastify/compress";
import type { FastifyInstance } from "fastify";
import { refusal } from "../../calls/errors/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { decompress } from "../limits/decompress.ts";

/** The minimum size of compressed responses, in bytes. Compressing smaller ones saves nothing. */
export const MIN_BYTES = 1_024;

/** Quality 4. Brotli's default, the maximum, takes seconds instead of milliseconds. */
const BROTLI: zlib.BrotliOptions = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } };
const brotli = promisify<Uint8Array, zlib.BrotliOptions, Buffer<ArrayBuffer>>(zlib.brotliCompress);

/**
 * Compression of responses in Connect, gRPC-Web and gRPC. Requests are decompressed within their limits before the
 * library reads them, except Connect messages in the query of a GET.
 */
export const RPC_COMPRESSION: Pick<ConnectRouterOptions, "acceptCompression" | "compressMinBytes"> = {
  acceptCompression: [
    { ...compressionGzip, decompress: decompressWithin("gzip") },
    { name: "br", compress: (bytes) => brotli(bytes, BROTLI), decompress: decompressWithin("br") },
  ],
  compressMinBytes: MIN_BYTES,
};

function decompressWithin(encoding: string): Compression["decompress"] {
  return async (bytes, maxBytes) => {
    const message = await decompress(encoding, bytes, maxBytes).catch((error: unknown) => {
      throw error instanceof DomainError ? refusal(error) : error;
    });
    return message as Uint8Array<ArrayBuffer>;
  };
}

/** Compresses the responses of this scope's routes according to `Accept-Encoding`. Requests are unchanged. */
export async function compressAnswers(scope: FastifyInstance): Promise<void> {
  await scope.register(compress, {
    encodings: ["br", "gzip"],
    threshold: MIN_BYTES,
    brotliOptions: BROTLI,
    globalDecompression: false,
  });
}
