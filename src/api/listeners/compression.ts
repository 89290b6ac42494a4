import { promisify } from "node:util";
import * as zlib from "node:zlib";
import type { ConnectRouterOptions } from "@connectrpc/connect";
import type { Compression } from "@connectrpc/connect/protocol";
import { compressionGzip } from "@connectrpc/connect-node";
import compress from "@fastify/compress";
import type { FastifyInstance } from "fastify";
import { DomainError } from "../../contract/errors.ts";
import { refusal } from "../errors/errors.ts";
import { decompress } from "../limits/decompress.ts";

/** Shorter answers are sent as they are: packing would save nothing, and cost some time. */
export const MIN_BYTES = 1_024;

/** Brotli's own default, the best there is, takes seconds for what this one does in milliseconds. */
const BROTLI: zlib.BrotliOptions = { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 4 } };
const brotli = promisify<Uint8Array, zlib.BrotliOptions, Buffer<ArrayBuffer>>(zlib.brotliCompress);

/**
 * How Connect, gRPC-Web and gRPC compress answers. Requests are decompressed within their limits before the library sees
 * them, except those that Connect carries in the query of a GET.
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

/** Packs the answers of the routes of this scope as `Accept-Encoding` says. Requests stay as they are. */
export async function compressAnswers(scope: FastifyInstance): Promise<void> {
  await scope.register(compress, {
    encodings: ["br", "gzip"],
    threshold: MIN_BYTES,
    brotliOptions: BROTLI,
    globalDecompression: false,
  });
}
