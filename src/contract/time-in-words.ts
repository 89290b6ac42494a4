/** A length of time in milliseconds as people read it: `15 seconds`, `1 second`, `0.25 seconds`. */
export function secondsInWords(ms: number): string {
  return ms === 1_000 ? "1 second" : `${ms / 1_000} seconds`;
}

/** What receivers are told of the timeout of a delivery. */
export const withinTimeout = (ms: number): string => `within ${secondsInWords(ms)}`;

/** A moment in UTC, to the second: `2026-11-22 10:00:00 UTC`. */
export function inUtc(time: Date): string {
  return `${time.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
