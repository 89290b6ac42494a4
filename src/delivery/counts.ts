import type { RecordedState } from "../db/queue/results.ts";

/** What became of the deliveries of an activity. */
export interface Counts {
  /** Attempts made and recorded. */
  sent: number;
  delivered: number;
  /** Failed, with retries left. */
  retrying: number;
  /** Failed for good. */
  failed: number;
}

export const noCounts = (): Counts => ({ sent: 0, delivered: 0, retrying: 0, failed: 0 });

/** Counts a recorded attempt; nothing where its claim was lost. */
export function countIn(counts: Counts, state: RecordedState | undefined): void {
  if (state === undefined) return;
  counts.sent += 1;
  if (state !== "cancelled") counts[state] += 1;
}
