import { setTimeout as wait } from "node:timers/promises";

/** The time and the timers of the delivery engine. Tests and the simulation replace them. */
export interface Clock {
  /** Monotonic time, in milliseconds. */
  now(): number;
  /** Calls once after a time in milliseconds. @returns cancels the call */
  after(ms: number, call: () => void): () => void;
  /** Calls at an interval in milliseconds. @returns ends the calls */
  every(ms: number, call: () => void): () => void;
  /** Calls once the current turn of the event loop is over. */
  soon(call: () => void): void;
  /**
   * Resolves after a time in milliseconds, or when the signal is aborted.
   *
   * @param options.ref whether the process is kept from ending meanwhile; true unless given
   */
  wait(ms: number, options?: { signal?: AbortSignal; ref?: boolean }): Promise<void>;
}

/** The clock of the system. */
export const systemClock: Clock = {
  now: () => performance.now(),
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
