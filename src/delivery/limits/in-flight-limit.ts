/** The initial and minimum value of the limit, in requests. */
const MIN_IN_FLIGHT = 64;
/** The interval between adjustments of the limit, in milliseconds. */
export const ADAPT_MS = 100;
/**
 * Thread utilization below which the limit grows, and from which it shrinks. With fast receivers on two cores, it is 0.8 to 0.97, so
 * that the limit falls to its minimum. A higher value sends more to distant receivers, and needs more memory.
 */
const BUSY = 0.7;
/** The weight of the latest sample in the moving average, which covers about the last third of a second. */
const SAMPLE_WEIGHT = 0.3;
/** The factor by which the limit grows. */
const GROWTH_FACTOR = 1.1;
/**
 * The factor by which the limit shrinks. After slow receivers have raised it, fast ones have more requests in flight than they
 * need, each of which takes up to a third more processor time.
 */
const SHRINK_FACTOR = 0.97;

/** Returns a function that measures the utilization of this thread since the previous call, from 0 to 1. */
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
 * The adaptive limit of concurrent requests in a process: the lowest value that keeps the thread busy. With fast
 * receivers that is some dozens; more would cost memory and time without benefit. With slow or distant receivers the
 * thread is idle, and the limit grows by 10 % every `ADAPT_MS`. Once the thread is busy, the limit shrinks.
 */
export class InFlightLimit {
  readonly max: number;
  readonly #utilization: () => number;
  #value: number;
  #average: number | undefined;

  /** @param utilization returns the thread utilization since its previous call */
  constructor(max: number, utilization = threadUtilization()) {
    this.max = max;
    this.#utilization = utilization;
    this.#value = Math.min(max, MIN_IN_FLIGHT);
  }

  get value(): number {
    return this.#value;
  }

  /**
   * Adjusts the limit. Must be called every `ADAPT_MS`. @param wasReached whether the limit delayed a task since the
   * last call
   */
  adapt(wasReached: boolean): void {
    const latest = this.#utilization();
    this.#average = (this.#average ?? latest) + (latest - (this.#average ?? latest)) * SAMPLE_WEIGHT;
    if (this.#average >= BUSY)
      this.#value = Math.max(Math.min(this.max, MIN_IN_FLIGHT), Math.floor(this.#value * SHRINK_FACTOR));
    else if (wasReached) this.#value = Math.min(this.max, Math.ceil(this.#value * GROWTH_FACTOR));
  }
}
