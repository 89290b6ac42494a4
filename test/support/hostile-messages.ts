import { brotliCompressSync, gzipSync } from "node:zlib";

/** The wire bytes of an unknown field: number 15, varint, value 1. */
const UNKNOWN_FIELD = [0x78, 0x01];
/** The wire bytes of an empty message in field 1. */
const EMPTY_ITEM = [0x0a, 0x00];

/** The same bytes so often that they fill a message. */
function filled(bytes: readonly number[], size: number): Buffer<ArrayBuffer> {
  return Buffer.alloc(size, Buffer.from(bytes));
}

/** A binary message of unknown fields. */
export const unknownFields = (size: number) => filled(UNKNOWN_FIELD, size);

/** A binary message whose field 1 is a list of empty messages. */
export const emptyItems = (count: number) => filled(EMPTY_ITEM, count * EMPTY_ITEM.length);

/** The same list as JSON, under a name. */
export const emptyItemsJson = (name: string, count: number) =>
  Buffer.from(`{"${name}":[${Array(count).fill("{}").join(",")}]}`);

/** 4 MiB of unknown fields, in a few bytes. */
export const BOMBS: Record<string, Buffer<ArrayBuffer>> = {
  br: brotliCompressSync(unknownFields(4 * 1024 * 1024)),
  gzip: gzipSync(unknownFields(4 * 1024 * 1024)),
};

/** A message in the envelope of gRPC, gRPC-Web and Connect's streams. */
export function enveloped(message: Uint8Array, flags = 0): Buffer<ArrayBuffer> {
  const head = Buffer.alloc(5);
  head.writeUInt8(flags);
  head.writeUInt32BE(message.byteLength, 1);
  return Buffer.concat([head, message]);
}
