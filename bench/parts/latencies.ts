/** Log-normal distribution of the hosts' latencies. */
const LATENCY = { medianMs: 200, sigma: 0.9, minMs: 20, maxMs: 3_000 };

/** The latency of the nth of `of` hosts, in milliseconds. Neighbours differ. */
export function latencyOf(nth: number, of: number): number {
  const place = (((nth * 7_919) % of) + 0.5) / of;
  const ms = LATENCY.medianMs * Math.exp(LATENCY.sigma * normalQuantile(place));
  return Math.round(Math.min(LATENCY.maxMs, Math.max(LATENCY.minMs, ms)));
}

/** The quantile of the normal distribution by Tukey's lambda, accurate to 0.01 between the 1st and 99th percentile. */
function normalQuantile(p: number): number {
  return 4.91 * (p ** 0.14 - (1 - p) ** 0.14);
}
