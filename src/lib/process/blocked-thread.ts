import type { Logger } from "pino";
import { systemClock as clock } from "./clock.ts";

/** The processor time without a pause from which the thread counts as blocked, in milliseconds. */
const BLOCKED_MS = 100;
/** The interval in which the thread would pause, in milliseconds. */
const PAUSE_MS = 20;
/** The interval in which blocks by the same work are logged once, in milliseconds. */
const LOG_INTERVAL_MS = 10_000;
/** Work that nobody has named. */
const OTHER = "other work";

/** Names what a thread works on, and logs what blocks it. */
export interface BlockedThread {
  /** Notes that the thread works on this from now on, such as a method, until it pauses. */
  works(on: string): void;
  /** Starts to watch. To be called when the process has started, which takes the thread longer. */
  start(): void;
  stop(): void;
}

/**
 * Creates what watches the current thread. Counts processor time, because a thread that waits for a core blocks nothing.
 *
 * @param log warns of work that takes more than 100 ms (BLOCKED_MS) without a pause: all other work of the thread waits meanwhile
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
