import type { SimulatedTime } from "./simulated-time.ts";

/** The duration of statements, as measured on an embedded PostgreSQL, and the network latency. */
export interface StatementCosts {
  /** The number of concurrent statements. Others are queued. */
  processors: number;
  /** The round trip time, in milliseconds. */
  roundTripMs: number;
  /** The time to visit a webhook in a claim, in microseconds. */
  visitUs: number;
  /** The time per claimed row, in microseconds. */
  claimRowUs: number;
  /** The time per recorded result, in microseconds. */
  recordRowUs: number;
}

/** Completes statements after their duration, on a number of processors and in order of arrival. */
export class SimulatedDatabase {
  readonly #time: SimulatedTime;
  readonly #costs: StatementCosts;
  /** The time at which each processor becomes free. */
  readonly #freeAt: Float64Array;
  /** The number of deliveries claimed or released by pending statements. */
  inTransit = 0;
  /** The number of claims of first attempts and retries. */
  claims = 0;
  /** The processor time of claims and of recorded results, in milliseconds. */
  claimingMs = 0;
  recordingMs = 0;

  constructor(time: SimulatedTime, costs: StatementCosts) {
    this.#time = time;
    this.#costs = costs;
    this.#freeAt = new Float64Array(costs.processors);
  }

  get now(): number {
    return this.#time.now;
  }

  claimed<T extends { deliveries: readonly unknown[] }>(visited: number, answer: T): Promise<T> {
    const rows = answer.deliveries.length;
    const work = (visited * this.#costs.visitUs + rows * this.#costs.claimRowUs) / 1_000;
    this.claims += 1;
    this.claimingMs += work;
    this.inTransit += rows;
    return this.#answer(work, answer, rows);
  }

  released(rows: number): Promise<void> {
    this.inTransit += rows;
    return this.#answer((rows * this.#costs.claimRowUs) / 1_000, undefined, rows);
  }

  /** A short reading statement. */
  read<T>(answer: T): Promise<T> {
    return this.#answer(0, answer, 0);
  }

  /** Calls `recorded` when the results are recorded. */
  record(rows: number, recorded: () => void): void {
    const work = (rows * this.#costs.recordRowUs) / 1_000;
    this.recordingMs += work;
    this.#time.plan(this.#work(work), recorded);
  }

  /** Occupies a processor. @returns the time of the response */
  #work(ms: number): number {
    let first = 0;
    for (let n = 1; n < this.#freeAt.length; n += 1)
      if ((this.#freeAt[n] as number) < (this.#freeAt[first] as number)) first = n;
    const end = Math.max(this.#time.now, this.#freeAt[first] as number) + ms;
    this.#freeAt[first] = end;
    return end + this.#costs.roundTripMs;
  }

  #answer<T>(workMs: number, answer: T, rows: number): Promise<T> {
    return new Promise((resolve) => {
      this.#time.clock.after(this.#work(workMs) - this.#time.now, () => {
        this.inTransit -= rows;
        resolve(answer);
      });
    });
  }
}
