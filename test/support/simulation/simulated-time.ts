import type { Clock } from "../../../src/process/clock.ts";

/** A scheduled event. */
export interface Occurrence {
  happen(): void;
}

/** The maximum simulated time between settling promises, in milliseconds. */
const MAX_SETTLE_INTERVAL_MS = 1;

/**
 * Simulated time: scheduled events in a binary heap, earliest first. Events at the same time occur in the order in
 * which they were scheduled.
 */
export class SimulatedTime {
  #times = new Float64Array(1_024);
  #orders = new Float64Array(1_024);
  #occurrences: (Occurrence | undefined)[] = [];
  #size = 0;
  #planned = 0;
  #now = 0;
  #suspendedMs = 0;
  /** Calls to make before time advances. */
  #soon: (() => void)[] = [];
  #mustSettle = false;

  get now(): number {
    return this.#now;
  }

  /** The clock for the delivery engine. */
  readonly clock: Clock = {
    now: () => this.#now,
    wall: () => this.#now + this.#suspendedMs,
    after: (ms, call) => {
      const planned = new Call(call, this);
      this.plan(this.#now + ms, planned);
      return () => planned.cancel();
    },
    every: (ms, call) => {
      let cancel = () => {};
      const again = () => {
        cancel = this.clock.after(ms, again);
        call();
      };
      cancel = this.clock.after(ms, again);
      return () => cancel();
    },
    soon: (call) => void this.#soon.push(call),
    wait: (ms, { signal } = {}) =>
      new Promise((resolve) => {
        if (signal?.aborted) return resolve();
        const cancel = this.clock.after(ms, () => {
          signal?.removeEventListener("abort", end);
          resolve();
        });
        function end(): void {
          cancel();
          resolve();
        }
        signal?.addEventListener("abort", end, { once: true });
      }),
  };

  /** Advances the wall clock alone, as on a machine that was suspended. */
  suspend(ms: number): void {
    this.#suspendedMs += ms;
  }

  /** Settles promises before the next event. */
  settle(): void {
    this.#mustSettle = true;
  }

  plan(time: number, occurrence: Occurrence): void {
    if (this.#size === this.#times.length) this.#grow();
    const order = this.#planned;
    this.#planned += 1;
    let place = this.#size;
    this.#size += 1;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      if ((this.#times[parent] as number) <= time) break;
      this.#move(parent, place);
      place = parent;
    }
    this.#put(place, time, order, occurrence);
  }

  /** Runs all events up to a time. */
  async run(until: number): Promise<void> {
    let settled = this.#now;
    await this.#settlePromises();
    while (this.#size > 0 && (this.#times[0] as number) <= until) {
      this.#now = this.#times[0] as number;
      this.#takeFirst().happen();
      this.#callSoon();
      if (!this.#mustSettle && this.#now - settled < MAX_SETTLE_INTERVAL_MS) continue;
      settled = this.#now;
      await this.#settlePromises();
    }
    this.#now = Math.max(this.#now, until);
  }

  #callSoon(): void {
    for (let n = 0; n < this.#soon.length; n += 1) (this.#soon[n] as () => void)();
    this.#soon.length = 0;
  }

  async #settlePromises(): Promise<void> {
    do {
      this.#callSoon();
      // Pending promise callbacks run before this one resolves.
      await new Promise<void>((resolve) => setImmediate(resolve));
    } while (this.#soon.length > 0);
    this.#mustSettle = false;
  }

  #takeFirst(): Occurrence {
    const first = this.#occurrences[0] as Occurrence;
    this.#size -= 1;
    const size = this.#size;
    const time = this.#times[size] as number;
    const order = this.#orders[size] as number;
    const last = this.#occurrences[size] as Occurrence;
    this.#occurrences[size] = undefined;
    if (size === 0) return first;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (child >= size) break;
      if (
        child + 1 < size &&
        this.#isBefore(child + 1, this.#times[child] as number, this.#orders[child] as number)
      )
        child += 1;
      if (!this.#isBefore(child, time, order)) break;
      this.#move(child, place);
      place = child;
    }
    this.#put(place, time, order, last);
    return first;
  }

  #isBefore(place: number, time: number, order: number): boolean {
    const own = this.#times[place] as number;
    return own < time || (own === time && (this.#orders[place] as number) < order);
  }

  #move(from: number, to: number): void {
    this.#times[to] = this.#times[from] as number;
    this.#orders[to] = this.#orders[from] as number;
    this.#occurrences[to] = this.#occurrences[from];
  }

  #put(place: number, time: number, order: number, occurrence: Occurrence): void {
    this.#times[place] = time;
    this.#orders[place] = order;
    this.#occurrences[place] = occurrence;
  }

  #grow(): void {
    const copy = (from: Float64Array) => {
      const to = new Float64Array(from.length * 2);
      to.set(from);
      return to;
    };
    this.#times = copy(this.#times);
    this.#orders = copy(this.#orders);
  }
}

/** A timer call, which promises may wait for. */
class Call implements Occurrence {
  readonly #time: SimulatedTime;
  #call: (() => void) | undefined;

  constructor(call: () => void, time: SimulatedTime) {
    this.#call = call;
    this.#time = time;
  }

  cancel(): void {
    this.#call = undefined;
  }

  happen(): void {
    if (!this.#call) return;
    this.#time.settle();
    this.#call();
  }
}
