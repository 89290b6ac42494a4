import type { SimulatedTime } from "../parts/simulated-time.ts";

/** What statements take, as measured on an embedded PostgreSQL, and the way to the database. */
export interface StatementCosts {
  /** Statements that are at work at once; others wait for their turn. */
  processors: number;
  /** There and back, in milliseconds. */
  roundTripMs: number;
  /** A claim's visit of a webhook, in microseconds. */
  visitUs: number;
  /** A claimed row, in microseconds. */
  claimRowUs: number;
  /** A recorded result, in microseconds. */
  recordRowUs: number;
}

/** Answers statements after the time they take, on so many processors and in the order in which they came. */
export class SimulatedDatabase {
  readonly #time: SimulatedTime;
  readonly #costs: StatementCosts;
  /** When each processor has done its statements. */
  readonly #freeAt: Float64Array;
  /** What has been claimed by statements that are not answered yet, or is given back by such. */
  inTransit = 0;
  /** Claims of first attempts and of retries. */
  claims = 0;
  /** What the claimed webhooks and rows, and the recorded results, have taken, in milliseconds. */
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

  /** A short statement that reads. */
  read<T>(answer: T): Promise<T> {
    return this.#answer(0, answer, 0);
  }

  /** Calls when so many results are recorded. */
  record(rows: number, recorded: () => void): void {
    const work = (rows * this.#costs.recordRowUs) / 1_000;
    this.recordingMs += work;
    this.#time.plan(this.#work(work), { happen: recorded });
  }

  /** A processor works. @returns the time of the answer */
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
