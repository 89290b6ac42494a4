import type { Clock } from "../../process/clock.ts";

/**
 * Starts work at once while there are few, and at a steady pace when there are many.
 *
 * @param pace how many may start at once, and how many per second after them
 */
export function createPacer(
  { atOnce, perSecond }: { atOnce: number; perSecond: number },
  clock: Pick<Clock, "now" | "after">,
): (start: () => void) => void {
  const gapMs = 1_000 / perSecond;
  /** When the work of all who came before has its turn. */
  let free = Number.NEGATIVE_INFINITY;
  return (start) => {
    const now = clock.now();
    free = Math.max(free + gapMs, now - (atOnce - 1) * gapMs);
    if (free <= now) start();
    else clock.after(free - now, start);
  };
}
