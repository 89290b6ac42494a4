import type { Clock } from "../../../src/lib/process/clock.ts";

/** The maximum simulated time between settling promises, in milliseconds. */
const MAX_SETTLE_INTERVAL_MS = 1;

/** An event with its time and the number of events that were scheduled before. */
interface Planned {
  time: number;
  order: number;
  call: () => void;
}

/**
 * Simulated time: scheduled events in a binary heap, earliest first. Events at the same time occur in the order in
 * which they were scheduled.
 */
export class SimulatedTime {
  readonly #heap: Planned[] = [];
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
    worked: () => 0,
    after: (ms, call) => {
      let pending: typeof call | undefined = call;
      this.plan(this.#now + ms, () => {
        // Promises may wait for the call.
        if (pending) this.#mustSettle = true;
        pending?.();
      });
      return () => {
        pending = undefined;
      };
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
        const end = () => {
          cancel();
          signal?.removeEventListener("abort", end);
          resolve();
        };
        const cancel = this.clock.after(ms, end);
        signal?.addEventListener("abort", end);
      }),
  };

  /** Advances the wall clock alone, as on a machine that was suspended. */
  suspend(ms: number): void {
    this.#suspendedMs += ms;
  }

  plan(time: number, call: () => void): void {
    const order = this.#planned;
    this.#planned += 1;
    let place = this.#heap.length;
    while (place > 0) {
      const parent = (place - 1) >> 1;
      const above = this.#heap[parent] as Planned;
      if (above.time <= time) break;
      this.#heap[place] = above;
      place = parent;
    }
    this.#heap[place] = { time, order, call };
  }

  /** Runs all events up to a time. */
  async run(until: number): Promise<void> {
    let settled = this.#now;
    await this.#settlePromises();
    for (let first = this.#heap[0]; first && first.time <= until; first = this.#heap[0]) {
      this.#now = first.time;
      this.#removeFirst();
      first.call();
      this.#callSoon();
      if (!this.#mustSettle && this.#now - settled < MAX_SETTLE_INTERVAL_MS) continue;
      settled = this.#now;
      await this.#settlePromises();
    }
    this.#now = Math.max(this.#now, until);
  }

  #callSoon(): void {
    for (const call of this.#soon) call();
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

  #removeFirst(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (!last || heap.length === 0) return;
    let place = 0;
    for (;;) {
      let child = 2 * place + 1;
      if (isBefore(heap[child + 1], heap[child])) child += 1;
      const next = heap[child];
      if (!next || !isBefore(next, last)) break;
      heap[place] = next;
      place = child;
    }
    heap[place] = last;
  }
}

function isBefore(one: Planned | undefined, other: Planned | undefined): boolean {
  if (!one || !other) return false;
  return one.time < other.time || (one.time === other.time && one.order < other.order);
}
