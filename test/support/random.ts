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

/** Draws indexes by their weights, each in constant time (Walker's alias method). */
export function weighted(weights: readonly number[], random: Random): () => number {
  const size = weights.length;
  const sum = weights.reduce((total, weight) => total + weight, 0);
  const chance = Float64Array.from(weights, (weight) => (weight / sum) * size);
  const alias = new Uint32Array(size);
  const small: number[] = [];
  const large: number[] = [];
  chance.forEach((each, index) => {
    (each < 1 ? small : large).push(index);
  });
  while (small.length > 0 && large.length > 0) {
    const less = small.pop() as number;
    const more = large.at(-1) as number;
    alias[less] = more;
    chance[more] = (chance[more] as number) + (chance[less] as number) - 1;
    if ((chance[more] as number) < 1) small.push(large.pop() as number);
  }
  for (const index of [...small, ...large]) chance[index] = 1;
  return () => {
    const place = random() * size;
    const index = Math.floor(place);
    return place - index < (chance[index] as number) ? index : (alias[index] as number);
  };
}

/** The same items in random order. */
export function shuffled<T>(items: readonly T[], random: Random): T[] {
  const result = [...items];
  for (let n = result.length - 1; n > 0; n -= 1) {
    const other = Math.floor(random() * (n + 1));
    [result[n], result[other]] = [result[other] as T, result[n] as T];
  }
  return result;
}
