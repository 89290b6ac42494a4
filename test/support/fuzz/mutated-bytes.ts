import fc from "fast-check";

type Mutation = (bytes: Buffer) => Buffer;

/** A place in bytes of any length, as a share of it. */
const place = fc.double({ min: 0, max: 0.999_999, noNaN: true });
const at = (bytes: Buffer, share: number) => Math.floor(share * bytes.length);

const flip = fc.tuple(place, fc.nat(7)).map(
  ([share, bit]): Mutation =>
    (bytes) => {
      const copy = Buffer.from(bytes);
      const index = at(bytes, share);
      if (copy.length > 0) copy[index] = (copy[index] as number) ^ (1 << bit);
      return copy;
    },
);
const cut = fc.tuple(place, place).map(
  ([from, length]): Mutation =>
    (bytes) => {
      const start = at(bytes, from);
      const end = start + Math.max(1, Math.floor(length * length * (bytes.length - start)));
      return Buffer.concat([bytes.subarray(0, start), bytes.subarray(end)]);
    },
);
const truncate = place.map(
  (share): Mutation =>
    (bytes) =>
      bytes.subarray(0, at(bytes, share)),
);
const duplicate = fc.tuple(place, place, fc.integer({ min: 1, max: 20 })).map(
  ([from, length, times]): Mutation =>
    (bytes) => {
      const start = at(bytes, from);
      const end = start + Math.min(200, Math.ceil(length * (bytes.length - start)));
      const part = bytes.subarray(start, end);
      return Buffer.concat([bytes.subarray(0, end), ...Array<Buffer>(times).fill(part), bytes.subarray(end)]);
    },
);
const insert = fc.tuple(place, fc.uint8Array({ minLength: 1, maxLength: 8 })).map(
  ([from, added]): Mutation =>
    (bytes) => {
      const start = at(bytes, from);
      return Buffer.concat([bytes.subarray(0, start), added, bytes.subarray(start)]);
    },
);

/** Bytes with one to four changes: bits flipped, parts cut out, repeated or inserted, the end cut off. */
export function mutated(bytes: fc.Arbitrary<Buffer>): fc.Arbitrary<Buffer> {
  const mutations = fc.array(fc.oneof(flip, cut, truncate, duplicate, insert), {
    minLength: 1,
    maxLength: 4,
  });
  return fc
    .tuple(bytes, mutations)
    .map(([original, list]) => list.reduce((changed, mutate) => mutate(changed), original));
}

export const randomBytes: fc.Arbitrary<Buffer> = fc
  .uint8Array({ maxLength: 64 })
  .map((bytes) => Buffer.from(bytes));
