import { promisify } from "node:util";
import * as zlib from "node:zlib";
import type { ConnectRouterOptions } from "@connectrpc/connect";
import { compressionBrotli, compressionGzip } from "@connectrpc/connect-node";
import compress from "@fastify/compress";
import type { FastifyInstance } from "fastify";

/** The minimum size of compressed responses, in bytes. Compressing smaller ones saves nothing. */
export const MIN_BYTES = 1_024;

/** Options of Brotli: quality 4. Brotli's default, the maximum, takes seconds instead of milliseconds. */
export const BROTLI: zlib.BrotliOptions = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } };
const brotli = promisify<Uint8Array, zlib.BrotliOptions, Buffer<ArrayBuffer>>(zlib.brotliCompress);

/**
 * Compression of responses in Connect, gRPC-Web and gRPC. Requests are decompressed within their limits before the
 * library reads them.
 */
export const RPC_COMPRESSION: Pick<ConnectRouterOptions, "acceptCompression" | "compressMinBytes"> = {
  acceptCompression: [compressionGzip, { ...compressionBrotli, compress: (bytes) => brotli(bytes, BROTLI) }],
  compressMinBytes: MIN_BYTES,
};

/** Compresses the responses of this scope's routes according to `Accept-Encoding`. Requests are unchanged. */
export async function compressAnswers(scope: FastifyInstance): Promise<void> {
  await scope.register(compress, {
    encodings: ["br", "gzip"],
    threshold: MIN_BYTES,
    brotliOptions: BROTLI,
    globalDecompression: false,
  });
}
