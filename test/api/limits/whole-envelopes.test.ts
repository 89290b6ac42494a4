import { encodeEnvelope } from "@connectrpc/connect/protocol";
import fc from "fast-check";
import { expect, test } from "vitest";
import { wholeEnvelopes } from "../../../src/api/limits/whole-envelopes.ts";

const MAX_BYTES = 100_000;

/** Chunks of the given lengths, in turn, which share no memory. */
async function* cut(bytes: Uint8Array, lengths: readonly number[]): AsyncIterable<Uint8Array> {
  for (let [from, n] = [0, 0]; from < bytes.length; n += 1) {
    const to = from + (lengths[n % lengths.length] as number);
    // A Buffer's own slice shares its memory.
    yield new Uint8Array(bytes.subarray(from, to));
    from = to;
  }
}

test("envelopes come out as they were sent, however the body is cut, while those that were read are freed", async () => {
  const message = fc.oneof(
    fc.uint8Array({ maxLength: 40 }),
    fc.uint8Array({ minLength: 9_000, maxLength: 20_000 }),
  );
  await fc.assert(
    fc.asyncProperty(
      fc.array(message, { maxLength: 6 }),
      fc.array(fc.oneof(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 5_000, max: 30_000 })), {
        minLength: 1,
        maxLength: 5,
      }),
      async (messages, lengths) => {
        const sent = messages.map((each) => Buffer.from(encodeEnvelope(0, each as Uint8Array<ArrayBuffer>)));
        const received: Buffer[] = [];
        for await (const envelope of wholeEnvelopes(cut(Buffer.concat(sent), lengths), MAX_BYTES)) {
          received.push(Buffer.from(envelope));
          const { buffer, byteLength } = envelope;
          if (byteLength === buffer.byteLength && buffer instanceof ArrayBuffer) buffer.transfer(0);
        }
        expect(received.map((each) => each.toString("hex"))).toEqual(
          sent.map((each) => each.toString("hex")),
        );
      },
    ),
    { numRuns: 60 },
  );
});

test("a body that ends within an envelope is refused, and a longer message as soon as its head has come", async () => {
  const whole = encodeEnvelope(0, new Uint8Array(10));
  const readAll = async (bytes: Uint8Array) => {
    const envelopes: Uint8Array[] = [];
    for await (const envelope of wholeEnvelopes(cut(bytes, [4]), 9)) envelopes.push(envelope);
    return envelopes;
  };
  await expect(readAll(whole.subarray(0, 5))).rejects.toThrow("at most 9 bytes");
  const short = encodeEnvelope(0, new Uint8Array(9));
  expect(await readAll(short)).toHaveLength(1);
  for (const length of [1, 4, 5, 13]) {
    await expect(readAll(short.subarray(0, length))).rejects.toThrow("incomplete envelope");
  }
});
