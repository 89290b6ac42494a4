import { Code, ConnectError } from "@connectrpc/connect";
import { messageTooLarge } from "./message-limits.ts";

/** The head of an envelope: a byte of flags, and the message's length as 4 bytes. */
export const ENVELOPE_HEAD_BYTES = 5;

/**
 * Splits a body into its envelopes, heads included. An envelope that arrived as one chunk is not copied.
 *
 * The library's decoder takes the memory of a message as soon as its head has arrived, without counting it, and adds up all chunks
 * of a message again with each of them.
 *
 * @param maxBytes the maximum length of a message
 * @throws DomainError RESOURCE_EXHAUSTED when the head of a longer one has arrived
 * @throws ConnectError INVALID_ARGUMENT if the body ends within an envelope
 */
export async function* wholeEnvelopes(
  chunks: AsyncIterable<Uint8Array>,
  maxBytes: number,
): AsyncIterable<Uint8Array> {
  let parts: Uint8Array[] = [];
  let size = 0;
  let wanted = ENVELOPE_HEAD_BYTES;
  for await (const chunk of chunks) {
    parts.push(chunk);
    size += chunk.byteLength;
    while (size >= wanted) {
      const bytes = parts.length === 1 ? (parts[0] as Uint8Array) : Buffer.concat(parts, size);
      const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(1);
      if (length > maxBytes) throw messageTooLarge(maxBytes);
      wanted = ENVELOPE_HEAD_BYTES + length;
      if (size < wanted) {
        parts = [bytes];
        break;
      }
      const envelope = bytes.subarray(0, wanted);
      size -= wanted;
      // An empty view would keep a buffer that the reader of the envelope may free.
      parts = size > 0 ? [bytes.subarray(wanted)] : [];
      wanted = ENVELOPE_HEAD_BYTES;
      yield envelope;
    }
  }
  if (size > 0) throw new ConnectError("protocol error: incomplete envelope", Code.InvalidArgument);
}
