import { promisify } from "node:util";
import * as zlib from "node:zlib";
import type { ConnectRouterOptions } from "@connectrpc/connect";
import { compressionBrotli, compressionGzip } from "@connectrpc/connect-node";
import compress from "@fastify/compress";
import type { FastifyInstance } from "fastify";

/** Shorter answers are sent as they are: packing would save nothing, and cost some time. */
export const MIN_BYTES = 1_024;

/** Brotli's own default, the best there is, takes seconds for what this one does in milliseconds. */
const BROTLI: zlib.BrotliOptions = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } };
const brotli = promisify<Uint8Array, zlib.BrotliOptions, Buffer<ArrayBuffer>>(zlib.brotliCompress);

/** How Connect, gRPC-Web and gRPC pack messages: both ways, as the caller's headers say. */
export const RPC_COMPRESSION: Pick<ConnectRouterOptions, "acceptCompression" | "compressMinBytes"> = {
  acceptCompression: [compressionGzip, { ...compressionBrotli, compress: (bytes) => brotli(bytes, BROTLI) }],
  compressMinBytes: MIN_BYTES,
};

/** Packs the answers of the routes of this scope as `Accept-Encoding` says. Requests stay as they are. */
export async function compressAnswers(scope: FastifyInstance): Promise<void> {
  await scope.register(compress, {
    encodings: ["br", "gzip"],
    threshold: MIN_BYTES,
    brotliOptions: BROTLI,
    globalDecompression: false,
  });
}
