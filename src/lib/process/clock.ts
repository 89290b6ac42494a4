import { setTimeout as wait } from "node:timers/promises";

/** Time and timers. Tests and simulations replace them. */
export interface Clock {
  /** Monotonic time, in milliseconds. Stands still while the machine is suspended. */
  now(): number;
  /** Wall-clock time, in milliseconds since 1970. May jump in both directions. */
  wall(): number;
  /** The processor time that this thread has used, in milliseconds. */
  worked(): number;
  /** Calls `call` once after `ms` milliseconds. @returns a function that cancels the call */
  after(ms: number, call: () => void): () => void;
  /** Calls `call` every `ms` milliseconds. @returns a function that stops the calls */
  every(ms: number, call: () => void): () => void;
  /** Calls `call` once, after the I/O events that have already arrived (`setImmediate`). */
  soon(call: () => void): void;
  /**
   * Resolves after `ms` milliseconds, or when the signal aborts. Never rejects.
   *
   * @param options.ref whether the timer keeps the process alive. Defaults to true
   */
  wait(ms: number, options?: { signal?: AbortSignal; ref?: boolean }): Promise<void>;
}

/** A point in time: `now` on the monotonic clock and `wall` on the wall clock, in milliseconds. */
export type Moment = Record<"now" | "wall", number>;

export const LONG_AGO: Moment = { now: Number.NEGATIVE_INFINITY, wall: Number.NEGATIVE_INFINITY };

export const currentMoment = (clock: Pick<Clock, "now" | "wall">): Moment => ({
  now: clock.now(),
  wall: clock.wall(),
});

export const systemClock: Clock = {
  now: () => performance.now(),
  wall: () => Date.now(),
  worked() {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1_000;
  },
  after(ms, call) {
    const timer = setTimeout(call, ms);
    return () => clearTimeout(timer);
  },
  every(ms, call) {
    const timer = setInterval(call, ms);
    return () => clearInterval(timer);
  },
  soon: (call) => void setImmediate(call),
  wait: (ms, options) => wait(ms, undefined, options).catch(() => {}),
};
