/** Returns a random number from 0 (inclusive) to 1 (exclusive). */
export type Random = () => number;

/** The generator sfc32: small, fast, and reproducible on every machine. */
export function randomOf(seed: number): Random {
  let [a, b, c, counter] = [seed | 0, 0x9e3779b9 | 0, 0x243f6a88, 1];
  const next = () => {
    const sum = (((a + b) | 0) + counter) | 0;
    counter = (counter + 1) | 0;
    a = b ^ (b >>> 9);
    b = (c + (c << 3)) | 0;
    c = (((c << 21) | (c >>> 11)) + sum) | 0;
    return (sum >>> 0) / 2 ** 32;
  };
  for (let n = 0; n < 16; n += 1) next();
  return next;
}
