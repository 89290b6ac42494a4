/** The bounds and the default of a setting of a circuit breaker. */
interface Bound {
  min: number;
  max: number;
  default: number;
}

/** The numeric settings of a circuit breaker; times are in seconds. */
export const BREAKER_BOUNDS = {
  /** Failed attempts in a row after which a breaker opens. */
  failures: { min: 1, max: 1_000, default: 10 },
  /** The time for which attempts must have failed before it opens. */
  failingSeconds: { min: 1, max: 86_400, default: 1_800 },
  /** The time before the first probe. */
  probeSeconds: { min: 1, max: 300, default: 60 },
  /** The time for which attempts must have failed before a failed probe disables the webhook. */
  disableSeconds: { min: 1, max: 2_592_000, default: 432_000 },
} as const satisfies Record<string, Bound>;

/** The interval between probes doubles with each failed one, up to this, in seconds. */
export const MAX_PROBE_INTERVAL_S = 300;
