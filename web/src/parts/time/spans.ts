const HOUR = 3_600_000;

/** Spans of time up to now, as URLs spell them. */
export const SPANS: readonly { value: string; label: string; ms: number }[] = [
  { value: "1h", label: "The last hour", ms: HOUR },
  { value: "24h", label: "The last 24 hours", ms: 24 * HOUR },
  { value: "7d", label: "The last 7 days", ms: 7 * 24 * HOUR },
];
