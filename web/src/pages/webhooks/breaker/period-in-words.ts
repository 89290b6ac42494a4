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
  return `${n.toLocaleString()} ${unit}${n === 1 ? "" : "s"}`;
}
