import type { Clock } from "../../process/clock.ts";

/**
 * Rate limiter that starts work at once within a burst, then at a steady rate.
 *
 * @param pace the burst, and the rate per second beyond it
 */
export function createPacer(
  { atOnce, perSecond }: { atOnce: number; perSecond: number },
  clock: Pick<Clock, "now" | "after">,
): (start: () => void) => void {
  const gapMs = 1_000 / perSecond;
  /** The time of the next free slot. */
  let free = Number.NEGATIVE_INFINITY;
  return (start) => {
    const now = clock.now();
    free = Math.max(free + gapMs, now - (atOnce - 1) * gapMs);
    if (free <= now) start();
    else clock.after(free - now, start);
  };
}
