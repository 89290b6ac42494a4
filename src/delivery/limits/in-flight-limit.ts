/** What the limit begins with, and never falls below. */
const MIN_IN_FLIGHT = 64;
/** How often it is adapted, in milliseconds. */
export const ADAPT_MS = 100;
/** Below this part of the thread's time more may be in flight, above the other one less. */
const IDLE = 0.75;
const BUSY = 0.9;
/** The weight of the latest measurement in the average, which follows the last third of a second. */
const WEIGHT = 0.3;
const GROWTH = 1.1;
const SHRINKAGE = 0.95;

/** The part of this thread's time that was taken since it was asked last, from 0 to 1. */
export function threadUtilization(): () => number {
  let last = performance.eventLoopUtilization();
  return () => {
    const now = performance.eventLoopUtilization();
    const { utilization } = performance.eventLoopUtilization(now, last);
    last = now;
    return utilization;
  };
}

/**
 * How many requests a process has in flight at once: as few as keep its thread busy. While receivers are fast that is
 * some dozens, and more would cost memory and time for nothing. While they are far the thread waits, and the limit grows
 * by a tenth ten times a second.
 */
export class InFlightLimit {
  readonly max: number;
  readonly #utilization: () => number;
  #value: number;
  #average: number | undefined;

  /** @param utilization the part of the thread's time that was taken since it was asked last */
  constructor(max: number, utilization = threadUtilization()) {
    this.max = max;
    this.#utilization = utilization;
    this.#value = Math.min(max, MIN_IN_FLIGHT);
  }

  get value(): number {
    return this.#value;
  }

  /** To be called every `ADAPT_MS`. @param wasReached whether something waited for it since the last time */
  adapt(wasReached: boolean): void {
    const latest = this.#utilization();
    this.#average = (this.#average ?? latest) + (latest - (this.#average ?? latest)) * WEIGHT;
    const taken = this.#average;
    if (taken > BUSY)
      this.#value = Math.max(Math.min(this.max, MIN_IN_FLIGHT), Math.floor(this.#value * SHRINKAGE));
    else if (taken < IDLE && wasReached) this.#value = Math.min(this.max, Math.ceil(this.#value * GROWTH));
  }
}
