/** Log-normal: half of the hosts answer within the median. */
const LATENCY = { medianMs: 200, sigma: 0.9, minMs: 20, maxMs: 3_000 };

/** The latency of the nth of so many hosts, in milliseconds; neighbours differ, as hosts do. */
export function latencyOf(nth: number, of: number): number {
  const place = (((nth * 7_919) % of) + 0.5) / of;
  const ms = LATENCY.medianMs * Math.exp(LATENCY.sigma * normalQuantile(place));
  return Math.round(Math.min(LATENCY.maxMs, Math.max(LATENCY.minMs, ms)));
}

/** The quantile of the normal distribution, by Tukey's lambda: within 0.01 between the first and the last percent. */
function normalQuantile(p: number): number {
  return 4.91 * (p ** 0.14 - (1 - p) ** 0.14);
}
