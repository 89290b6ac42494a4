import type { Claimant, ClaimedDelivery, ClaimToken, PendingClaim } from "../../../src/queue/claims.ts";
import type { ClaimedWebhook } from "../../../src/webhooks/claimed-webhooks.ts";
import type { Measuring, SimulatedWebhook } from "./receivers.ts";
import type { SimulatedDatabase } from "./simulated-database.ts";

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
  /** The earliest time of the attempt; for a first attempt, the arrival time. */
  readonly due: number;
  /** The retry group of a claimed retry. */
  group = 0;

  constructor(of: SimulatedWebhook, claimant: Claimant, attempts: number, number: number, due: number) {
    this.of = of;
    this.workerId = claimant.workerId;
    this.runId = claimant.runId;
    this.attempts = attempts;
    this.number = number;
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
  #arrived = 0;

  constructor(webhooks: readonly SimulatedWebhook[], database: SimulatedDatabase, measurements: Measuring) {
    this.webhooks = webhooks;
    this.database = database;
    this.#measurements = measurements;
    this.free = webhooks.map(() => new Rows());
    this.#rows = new Int32Array(webhooks.length);
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
    this.#rows[number] = (this.#rows[number] as number) + 1;
    this.#measurements.arrived(time, this.webhooks[number] as SimulatedWebhook);
    this.#arrived += 1;
  }

  claim(
    claimant: Claimant,
    options: { limit: number; after: bigint; excluded: readonly bigint[] },
  ): Promise<Omit<PendingClaim, "workers">> {
    const { limit } = options;
    const excluded = new Set(options.excluded.map((id) => Number(id) - 1));
    const eligible: number[] = [];
    let visited = 0;
    // Ids start at 1, so an id is the index of the next webhook.
    let n = Number(options.after);
    for (; n < this.#rows.length && visited < limit; n += 1) {
      if (this.#rows[n] === 0) continue;
      visited += 1;
      if ((this.free[n] as Rows).size > 0 && !excluded.has(n)) eligible.push(n);
    }
    const next = visited === limit ? BigInt(n) : null;
    const share = Math.max(1, Math.floor(limit / Math.max(1, eligible.length)));
    const deliveries: SimulatedDelivery[] = [];
    for (const each of eligible)
      this.#take(each, Math.min(share, limit - deliveries.length), claimant, deliveries);
    const touched = deliveries.length;
    return this.database.claimed(visited, { deliveries, touched, laterMs: null, next });
  }

  /** Releases a claim. */
  release({ of, due, number }: SimulatedDelivery): void {
    (this.free[of.number] as Rows).restore(due, number);
  }

  /** Removes a row whose first attempt is recorded. */
  remove({ of: { number } }: SimulatedDelivery): void {
    this.#rows[number] = (this.#rows[number] as number) - 1;
  }

  #take(number: number, most: number, claimant: Claimant, into: SimulatedDelivery[]): void {
    const rows = this.free[number] as Rows;
    for (let n = Math.min(most, rows.size); n > 0; n -= 1) {
      const { firstTime, firstNumber } = rows;
      rows.shift();
      const of = this.webhooks[number] as SimulatedWebhook;
      into.push(new SimulatedDelivery(of, claimant, 0, firstNumber, firstTime));
    }
  }
}
