import { systemClock } from "../../lib/process/index.ts";

/** The interval between samples of the thread's utilization, in milliseconds. */
export const SAMPLE_MS = 100;
/** The cost of a new connection with TLS, in requests over an open one: 1 ms of thread time against 60 µs. */
const CONNECTION_COST = 16;
/** The cost of an attempt to a failing receiver, in requests: its retries are claimed and recorded in smaller batches. */
const FAILING_COST = 4;
/** The thread utilization, 0 to 1, from which attempts to failing receivers are limited to their share. */
const BUSY = 0.7;
/**
 * The weight of the latest sample in the moving average of the utilization. An idle thread is busy after 0.4 s of full work. A fully busy
 * thread is not busy any more after about 1 s without work, so that a short wait for a claim changes nothing.
 */
const SAMPLE_WEIGHT = { rising: 0.3, falling: 0.03 };
/** The factor applied to the counted costs at each sample: costs count half after 0.7 s. */
const DECAY = 0.9;
/** The cost allowed in addition to the share, in requests, so that failing receivers get an attempt however busy the thread is. */
const MIN_COST = CONNECTION_COST;

/**
 * Returns a function that measures the utilization of this thread since the previous call, from 0 to 1: processor time divided by the
 * sum of processor time and idle time. The time in which the thread is ready but has no processor does not count.
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
 * Limits attempts to failing receivers to a share of a busy thread's time. Costs are counted in requests, not in milliseconds, so that the
 * share does not depend on the speed of the machine.
 */
export class FailingShare {
  readonly #share: number;
  readonly #utilization: () => number;
  #average = 0;
  #all = 0;
  #failing = 0;

  /**
   * @param share the part of the costs of about the last second that failing receivers may cause, 0 to 1
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

  /** Counts a request. */
  request(isFailing: boolean): void {
    this.#spend(isFailing ? FAILING_COST : 1, isFailing);
  }

  /** Counts a new connection, in addition to its request. */
  connection(isFailing: boolean): void {
    this.#spend(CONNECTION_COST, isFailing);
  }

  #spend(cost: number, isFailing: boolean): void {
    this.#all += cost;
    if (isFailing) this.#failing += cost;
  }

  /** Must be called every `SAMPLE_MS`. @returns the moving average of the thread utilization, 0 to 1 */
  sample(): number {
    const change = this.#utilization() - this.#average;
    this.#average += change * (change > 0 ? SAMPLE_WEIGHT.rising : SAMPLE_WEIGHT.falling);
    this.#all *= DECAY;
    this.#failing *= DECAY;
    return this.#average;
  }
}
