import type { Logger } from "pino";
import { systemClock as clock } from "./clock.ts";

/** The processor time used without a pause from which the thread counts as blocked, in milliseconds. */
const BLOCKED_MS = 100;
/** The interval of the timer that notices pauses, in milliseconds: its callback only runs when other work has paused. */
const PAUSE_MS = 20;
/** The minimum interval between log lines about the same work, in milliseconds. */
const LOG_INTERVAL_MS = 10_000;
/** The name of work for which `works` was not called. */
const OTHER = "other work";

/** Records by name what a thread works on, and warns of work that blocks the thread. */
export interface BlockedThread {
  /** Sets the name of the work, such as a method, that the thread does from now on until it pauses. No effect before `start`. */
  works(on: string): void;
  /** Starts watching. Call it when the process has started up, because the startup itself blocks the thread. */
  start(): void;
  stop(): void;
}

/**
 * Creates a watch of the current thread. Measures processor time, not elapsed time: a thread that waits for a processor core is not
 * blocked by its work.
 *
 * @param log gets a warning about work that takes 100 ms (BLOCKED_MS) or more without a pause. All other work of the thread waits
 *   meanwhile
 */
export function watchBlockedThread(log: Logger): BlockedThread {
  let work = OTHER;
  let sinceMs = 0;
  let timer: NodeJS.Timeout | undefined;
  const logged = new Map<string, { at: number; blocks: number }>();

  function works(on: string): void {
    if (!timer) return;
    const now = clock.worked();
    const blockedMs = Math.round(now - sinceMs);
    if (blockedMs >= BLOCKED_MS) warn(work, blockedMs);
    work = on;
    sinceMs = now;
  }

  function warn(by: string, blockedMs: number): void {
    const last = logged.get(by) ?? { at: Number.NEGATIVE_INFINITY, blocks: 0 };
    last.blocks += 1;
    logged.set(by, last);
    if (clock.now() - last.at < LOG_INTERVAL_MS) return;
    log.warn(
      { by, blockedMs, blocks: last.blocks },
      "the thread was blocked; other calls and deliveries waited",
    );
    Object.assign(last, { at: clock.now(), blocks: 0 });
  }

  return {
    works,
    start() {
      sinceMs = clock.worked();
      timer = setInterval(works, PAUSE_MS, OTHER).unref();
    },
    stop() {
      clearInterval(timer);
      timer = undefined;
    },
  };
}
