/** True under `npm run faults`: the sizes that docs/reliability.md tells of, instead of those for every test run. */
export const FULL_SIZE = process.env.MODE === "full";

/** Shows a figure of a run at full size. */
export function tell(line: string): void {
  if (FULL_SIZE || process.env.TEST_LOG_LEVEL) console.log(line);
}
