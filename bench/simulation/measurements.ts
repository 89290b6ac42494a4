import type { SimulatedDelivery } from "../../test/support/simulation/queue-table.ts";
import {
  type AttemptedState,
  type Behaviour,
  type Measuring,
  type SimulatedWebhook,
  stateAfter,
} from "../../test/support/simulation/receivers.ts";

/** The number of histogram steps per doubling. */
const STEPS_PER_DOUBLING = 16;

/** A histogram of times in milliseconds, with a resolution of 5 %. */
export class Histogram {
  readonly #counts = new Float64Array(40 * STEPS_PER_DOUBLING);
  #sum = 0;
  count = 0;
  max = 0;

  add(ms: number): void {
    const step = Math.floor(Math.log2(ms * 10 + 1) * STEPS_PER_DOUBLING);
    this.#counts[step] = (this.#counts[step] as number) + 1;
    this.#sum += ms;
    this.count += 1;
    if (ms > this.max) this.max = ms;
  }

  get mean(): number {
    return this.count === 0 ? 0 : this.#sum / this.count;
  }

  /** A quantile, accurate to 5 %. */
  quantile(part: number): number {
    let left = part * this.count;
    for (let step = 0; step < this.#counts.length; step += 1) {
      left -= this.#counts[step] as number;
      if (left <= 0) return Math.min(this.max, (2 ** ((step + 1) / STEPS_PER_DOUBLING) - 1) / 10);
    }
    return this.max;
  }
}

/** First attempts that have arrived but not started, by number. */
class OpenArrivals {
  #times = new Float64Array(1 << 20);
  #first = 0;
  #end = 0;

  add(number: number, time: number): void {
    while (number - this.#first >= this.#times.length) this.#makeRoom();
    this.#times[number & (this.#times.length - 1)] = time;
    this.#end = number + 1;
  }

  remove(number: number): void {
    this.#times[number & (this.#times.length - 1)] = Number.NaN;
  }

  /** The arrival time of the oldest. */
  oldest(): number | undefined {
    const mask = this.#times.length - 1;
    while (this.#first < this.#end && Number.isNaN(this.#times[this.#first & mask])) this.#first += 1;
    return this.#first < this.#end ? this.#times[this.#first & mask] : undefined;
  }

  #makeRoom(): void {
    const before = this.#first;
    this.oldest();
    if (this.#first - before > this.#times.length / 2) return;
    const times = this.#times;
    this.#times = new Float64Array(times.length * 2);
    for (let n = this.#first; n < this.#end; n += 1)
      this.#times[n & (this.#times.length - 1)] = times[n & (times.length - 1)] as number;
  }
}

const perBehaviour = <T>(make: () => T): Record<Behaviour, T> => ({
  healthy: make(),
  failing: make(),
  hanging: make(),
  recovering: make(),
});

/** Counts the events of deliveries. */
export class Measurements implements Measuring {
  readonly arrivals = perBehaviour(() => ({ count: 0 }));
  /** The time from arrival to the start of the first attempt. */
  readonly wait = perBehaviour(() => new Histogram());
  /** The time from a retry's due time to its start. */
  readonly retryDelay = perBehaviour(() => new Histogram());
  readonly states: Record<"delivered" | "failed" | "retrying", number> = {
    delivered: 0,
    failed: 0,
    retrying: 0,
  };
  attempts = 0;
  /** The first violations of limits. */
  readonly faults: string[] = [];
  readonly #open = new OpenArrivals();
  #arrived = 0;

  /** The arrival time of the oldest first attempt to a healthy host that has not started. */
  get oldestHealthy(): number | undefined {
    return this.#open.oldest();
  }

  arrived(time: number, { host: { behaviour } }: SimulatedWebhook): void {
    this.arrivals[behaviour].count += 1;
    this.#open.add(this.#arrived, behaviour === "healthy" ? time : Number.NaN);
    this.#arrived += 1;
  }

  started({ of, attempts, number, due }: SimulatedDelivery, time: number): void {
    const { behaviour } = of.host;
    this.attempts += 1;
    if (attempts === 0 && behaviour === "healthy") this.#open.remove(number);
    (attempts === 0 ? this.wait : this.retryDelay)[behaviour].add(Math.max(0, time - due));
  }

  recorded(delivery: SimulatedDelivery, delivered: boolean): AttemptedState {
    const state = stateAfter(delivery, delivered);
    this.states[state] += 1;
    return state;
  }

  exceeded(what: string): void {
    if (this.faults.length < 10) this.faults.push(what);
  }
}
