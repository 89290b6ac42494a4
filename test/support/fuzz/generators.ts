import fc from "fast-check";

/** A usual value, and once in so many times another one. */
export const seldom = <T, U = T>(
  usual: fc.Arbitrary<T>,
  other: fc.Arbitrary<U>,
  weight = 12,
): fc.Arbitrary<T | U> => fc.oneof({ weight, arbitrary: usual }, { weight: 1, arbitrary: other });

/** Any bytes. */
export const noise: fc.Arbitrary<Buffer> = fc
  .uint8Array({ maxLength: 64 })
  .map((bytes) => Buffer.from(bytes));

/** Bytes that are put in the place of others. A part that is repeated has 200 bytes at most. */
const change = fc.record({
  from: fc.double({ min: 0, max: 1, noNaN: true }),
  length: fc.oneof(fc.constant(0), fc.constant(1), fc.double({ min: 0, max: 1, noNaN: true })),
  times: fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 20 })),
  added: fc.uint8Array({ maxLength: 8 }),
});

/** Bytes with one to four changes: parts overwritten, cut out, repeated or inserted, the end cut off. */
export function mutated(bytes: fc.Arbitrary<Buffer>): fc.Arbitrary<Buffer> {
  return fc.tuple(bytes, fc.array(change, { minLength: 1, maxLength: 4 })).map(([original, changes]) =>
    changes.reduce((changed, { from, length, times, added }) => {
      const start = Math.floor(from * changed.length);
      const end = start + (length === 1 ? 1 : Math.ceil(length * (changed.length - start)));
      const again = Array<Buffer>(times).fill(changed.subarray(start, Math.min(end, start + 200)));
      return Buffer.concat([changed.subarray(0, start), added, ...again, changed.subarray(end)]);
    }, original),
  );
}
