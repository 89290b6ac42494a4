import { systemClock } from "../../process/clock.ts";

/** The interval between samples of the thread's utilization, in milliseconds. */
export const SAMPLE_MS = 100;
/** The cost of a new connection with TLS, in requests over an open one: 1 ms of thread time against 60 µs. */
export const CONNECTION_COST = 16;
/** The thread utilization, 0 to 1, from which attempts to failing receivers are limited to their share. */
const BUSY = 0.7;
/** The weight of the latest sample in the moving average, which covers about the last third of a second. */
const SAMPLE_WEIGHT = 0.3;
/** The factor by which earlier costs count less after each sample: a half after 0.7 s. */
const DECAY = 0.9;
/** The cost that failing receivers may always have, so that they are tried however busy the thread is. */
const MIN_COST = CONNECTION_COST;

/**
 * Returns a function that measures the utilization of this thread since the previous call, from 0 to 1: its processor time as a
 * part of that and its idle time. The time in which it waits for a processor does not count.
 */
export function threadUtilization(): () => number {
  const read = () => ({ worked: systemClock.worked(), idle: performance.eventLoopUtilization().idle });
  let last = read();
  return () => {
    const now = read();
    const workedMs = now.worked - last.worked;
    const idleMs = now.idle - last.idle;
    last = now;
    return workedMs / Math.max(1, workedMs + idleMs);
  };
}

/**
 * Limits attempts to receivers that fail one attempt after another to a share of a busy thread's time. Costs are counted in requests:
 * the share then holds at every pace of the machine.
 */
export class FailingShare {
  readonly #share: number;
  readonly #utilization: () => number;
  #average = 0;
  #all = 0;
  #failing = 0;

  /**
   * @param share of the costs of the last second, 0 to 1
   * @param utilization returns the thread utilization since its previous call
   */
  constructor(share: number, utilization = threadUtilization()) {
    this.#share = share;
    this.#utilization = utilization;
  }

  /** Whether an attempt to a failing receiver may start. */
  get hasRoom(): boolean {
    return this.#average < BUSY || this.#failing < this.#share * this.#all + MIN_COST;
  }

  /** Counts a request, or with `CONNECTION_COST` its new connection. */
  spend(cost: number, isFailing: boolean): void {
    this.#all += cost;
    if (isFailing) this.#failing += cost;
  }

  /** Must be called every `SAMPLE_MS`. @returns the moving average of the thread utilization, 0 to 1 */
  sample(): number {
    this.#average += (this.#utilization() - this.#average) * SAMPLE_WEIGHT;
    this.#all *= DECAY;
    this.#failing *= DECAY;
    return this.#average;
  }
}
