/** A length of time in milliseconds as people read it: `15 seconds`, `1 second`, `0.25 seconds`. */
export function secondsInWords(ms: number): string {
  return ms === 1_000 ? "1 second" : `${ms / 1_000} seconds`;
}

const UNITS = [
  [86_400, "day"],
  [3_600, "hour"],
  [60, "minute"],
  [1, "second"],
] as const;

/** A whole number of the largest unit that is exact: `5 days`, `30 minutes`, `90 seconds`. */
export function periodInWords(seconds: number): string {
  const [length, unit] = UNITS.find(([each]) => seconds >= each && seconds % each === 0) ?? UNITS[3];
  const n = seconds / length;
  return `${n.toLocaleString("en")} ${unit}${n === 1 ? "" : "s"}`;
}

/** What receivers are told of the timeout of a delivery. */
export const withinTimeout = (ms: number): string => `within ${secondsInWords(ms)}`;

/** A moment in UTC, to the second: `2026-11-22 10:00:00 UTC`. */
export function inUtc(time: Date): string {
  return `${time.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
