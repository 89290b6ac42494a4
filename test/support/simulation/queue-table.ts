import type { Claimant, ClaimedDelivery, ClaimResult, ClaimToken } from "../../../src/db/queue/claims.ts";
import type { ClaimedWebhook } from "../../../src/db/queue/webhooks.ts";
import type { Measuring, SimulatedWebhook } from "./receivers.ts";
import type { SimulatedDatabase } from "./simulated-database.ts";

/** The maximum number of webhooks visited by one claim, as in `claimPending`. */
const MAX_WEBHOOKS_PER_CLAIM = 512;

/** A claimed delivery. The object is also its token, because 42 million of them are created. */
export class SimulatedDelivery implements ClaimedDelivery, ClaimToken {
  readonly id = "00000000-0000-7000-8000-000000000000";
  readonly eventId = "00000000-0000-7000-8000-000000000000";
  readonly of: SimulatedWebhook;
  readonly workerId: number;
  readonly runId: number;
  /** The number of attempts recorded before this one. */
  readonly attempts: number;
  /** The number of the arrival, from 0. */
  readonly number: number;
  /** The arrival time, in milliseconds. */
  readonly arrived: number;
  /** The earliest time of the attempt; for a first attempt, the arrival time. */
  readonly due: number;

  constructor(
    of: SimulatedWebhook,
    claimant: Claimant,
    attempts: number,
    number: number,
    arrived: number,
    due: number,
  ) {
    this.of = of;
    this.workerId = claimant.workerId;
    this.runId = claimant.runId;
    this.attempts = attempts;
    this.number = number;
    this.arrived = arrived;
    this.due = due;
  }

  get webhook(): ClaimedWebhook {
    return this.of.webhook;
  }

  get token(): ClaimToken {
    return this;
  }

  get table(): "queue" | "retries" {
    return this.attempts === 0 ? "queue" : "retries";
  }
}

/** Unclaimed rows ordered by an increasing time. Released rows come first. */
export class Rows {
  readonly #times: number[] = [];
  readonly #numbers: number[] = [];
  #head = 0;

  get size(): number {
    return this.#times.length - this.#head;
  }

  /** The minimum time. Must be called only if there are rows. */
  get firstTime(): number {
    return this.#times[this.#head] as number;
  }

  get firstNumber(): number {
    return this.#numbers[this.#head] as number;
  }

  push(time: number, number: number): void {
    this.#times.push(time);
    this.#numbers.push(number);
  }

  shift(): void {
    this.#head += 1;
    if (this.#head < 64 || this.#head < this.size) return;
    for (const each of [this.#times, this.#numbers]) each.splice(0, this.#head);
    this.#head = 0;
  }

  /** Inserts a released row at its place, which is near the front. */
  restore(time: number, number: number): void {
    const place = this.#head + this.countBefore(time);
    this.#times.splice(place, 0, time);
    this.#numbers.splice(place, 0, number);
  }

  /** The number of rows with a time before this one. */
  countBefore(time: number): number {
    let [low, high] = [this.#head, this.#times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#times[middle] as number) < time) low = middle + 1;
      else high = middle;
    }
    return low - this.#head;
  }
}

/** The table `queue`: the claims of `claimPending`, without rate limits, pauses and crashes. */
export class QueueTable {
  protected readonly webhooks: readonly SimulatedWebhook[];
  protected readonly database: SimulatedDatabase;
  readonly #measurements: Measuring;
  protected readonly free: readonly Rows[];
  /** The number of rows per webhook, including claimed ones. */
  readonly #rows: Int32Array;
  /** One bit per webhook that has rows. */
  readonly #present: Uint32Array;
  #arrived = 0;

  constructor(webhooks: readonly SimulatedWebhook[], database: SimulatedDatabase, measurements: Measuring) {
    this.webhooks = webhooks;
    this.database = database;
    this.#measurements = measurements;
    this.free = webhooks.map(() => new Rows());
    this.#rows = new Int32Array(webhooks.length);
    this.#present = new Uint32Array(Math.ceil(webhooks.length / 32) + 1);
  }

  /** The number of deliveries that have arrived. */
  get arrived(): number {
    return this.#arrived;
  }

  /** The number of unclaimed rows. */
  get unclaimed(): number {
    return this.free.reduce((sum, { size }) => sum + size, 0);
  }

  /** Adds a delivery of a webhook that arrives at a time, by default now. */
  add(number: number, time = this.database.now): void {
    (this.free[number] as Rows).push(time, this.#arrived);
    this.#addRow(number);
    this.#measurements.arrived(time, this.webhooks[number] as SimulatedWebhook);
    this.#arrived += 1;
  }

  claim(
    claimant: Claimant,
    options: { limit: number; after: bigint; excluded: readonly bigint[] },
  ): Promise<ClaimResult & { next: bigint | null }> {
    const { limit } = options;
    const excluded = new Set(options.excluded.map((id) => Number(id) - 1));
    const eligible: number[] = [];
    const most = Math.min(limit, MAX_WEBHOOKS_PER_CLAIM);
    let [visited, last] = [0, -1];
    // Ids start at 1, so an id is the index of the next webhook.
    for (
      let n = this.#nextPresent(Number(options.after));
      n >= 0 && visited < most;
      n = this.#nextPresent(n + 1)
    ) {
      visited += 1;
      last = n;
      if ((this.free[n] as Rows).size > 0 && !excluded.has(n)) eligible.push(n);
    }
    const next = visited === most ? BigInt(last + 1) : null;
    const share = Math.max(1, Math.floor(limit / Math.max(1, eligible.length)));
    const deliveries: SimulatedDelivery[] = [];
    for (const n of eligible) this.#take(n, Math.min(share, limit - deliveries.length), claimant, deliveries);
    const touched = deliveries.length;
    return this.database.claimed(visited, { deliveries, touched, limited: false, next });
  }

  /** Releases a claim. */
  release({ of, arrived, number }: SimulatedDelivery): void {
    (this.free[of.number] as Rows).restore(arrived, number);
  }

  /** Removes a row whose first attempt is recorded. */
  remove({ of: { number } }: SimulatedDelivery): void {
    const left = (this.#rows[number] as number) - 1;
    this.#rows[number] = left;
    if (left === 0)
      this.#present[number >> 5] = (this.#present[number >> 5] as number) & ~(1 << (number & 31));
  }

  #take(number: number, most: number, claimant: Claimant, into: SimulatedDelivery[]): void {
    const rows = this.free[number] as Rows;
    for (let n = Math.min(most, rows.size); n > 0; n -= 1) {
      const { firstTime, firstNumber } = rows;
      rows.shift();
      const of = this.webhooks[number] as SimulatedWebhook;
      into.push(new SimulatedDelivery(of, claimant, 0, firstNumber, firstTime, firstTime));
    }
  }

  #addRow(number: number): void {
    this.#rows[number] = (this.#rows[number] as number) + 1;
    this.#present[number >> 5] = (this.#present[number >> 5] as number) | (1 << (number & 31));
  }

  /** The first webhook with rows from an index on; -1 if none. */
  #nextPresent(from: number): number {
    let word = from >> 5;
    if (word >= this.#present.length) return -1;
    let bits = (this.#present[word] as number) & (-1 << (from & 31));
    while (bits === 0) {
      word += 1;
      if (word >= this.#present.length) return -1;
      bits = this.#present[word] as number;
    }
    return word * 32 + 31 - Math.clz32(bits & -bits);
  }
}
