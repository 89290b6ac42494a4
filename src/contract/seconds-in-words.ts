/** A length of time in milliseconds as people read it: `15 seconds`, `1 second`, `0.25 seconds`. */
export function secondsInWords(ms: number): string {
  return ms === 1_000 ? "1 second" : `${ms / 1_000} seconds`;
}
