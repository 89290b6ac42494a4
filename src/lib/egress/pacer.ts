import type { Clock } from "../process/index.ts";

/** Rate limiter that starts work at once within a burst, then at a steady rate, in the order of the calls. */
export class Pacer {
  readonly #clock: Pick<Clock, "now" | "after">;
  readonly #gapMs: number;
  readonly #atOnce: number;
  /** The time of the last slot taken, in milliseconds of the clock. A slot that is given back moves it back by one gap. */
  #last = Number.NEGATIVE_INFINITY;
  readonly #waiting = new Set<() => void>();
  #cancelTimer = () => {};

  /** @param pace the burst, and the rate per second beyond it */
  constructor(
    { atOnce, perSecond }: { atOnce: number; perSecond: number },
    clock: Pick<Clock, "now" | "after">,
  ) {
    this.#clock = clock;
    this.#gapMs = 1_000 / perSecond;
    this.#atOnce = atOnce;
  }

  /** The approximate time until all waiting work has started, in milliseconds. */
  get backlogMs(): number {
    return this.#waiting.size * this.#gapMs;
  }

  /**
   * Calls `start` when its slot comes. If a slot is free, calls it before `take` returns.
   *
   * @param start starts the work. Must be a new function in each call, because the pacer identifies the work by it
   * @returns a function that gives the slot to other work. If `start` has not been called yet, it never will be. Call the returned
   *   function at most once
   */
  take(start: () => void): () => void {
    this.#waiting.add(start);
    this.#startDue();
    return () => {
      if (this.#waiting.delete(start)) return;
      this.#last -= this.#gapMs;
      this.#startDue();
    };
  }

  #startDue(): void {
    for (const start of this.#waiting) {
      const now = this.#clock.now();
      const slot = Math.max(this.#last + this.#gapMs, now - (this.#atOnce - 1) * this.#gapMs);
      if (slot > now) {
        this.#cancelTimer();
        this.#cancelTimer = this.#clock.after(slot - now, () => this.#startDue());
        return;
      }
      this.#last = slot;
      this.#waiting.delete(start);
      start();
    }
  }
}
