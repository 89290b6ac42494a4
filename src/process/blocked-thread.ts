import type { Logger } from "pino";

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
  stop(): void;
}

/**
 * Watches the current thread. Counts processor time, because a thread that waits for a core blocks nothing.
 *
 * @param log warns of work that takes more than 100 ms (BLOCKED_MS) without a pause: all other work of the thread waits meanwhile
 */
export function watchBlockedThread(log: Logger): BlockedThread {
  let work = OTHER;
  let sinceUs = workedUs();
  const logged = new Map<string, { at: number; blocks: number }>();

  function works(on: string): void {
    const now = workedUs();
    const blockedMs = Math.round((now - sinceUs) / 1_000);
    if (blockedMs >= BLOCKED_MS) warn(work, blockedMs);
    work = on;
    sinceUs = now;
  }

  function warn(by: string, blockedMs: number): void {
    const last = logged.get(by) ?? { at: Number.NEGATIVE_INFINITY, blocks: 0 };
    last.blocks += 1;
    logged.set(by, last);
    if (performance.now() - last.at < LOG_INTERVAL_MS) return;
    log.warn(
      { by, blockedMs, blocks: last.blocks },
      "the thread was blocked; other calls and deliveries waited",
    );
    Object.assign(last, { at: performance.now(), blocks: 0 });
  }

  const timer = setInterval(works, PAUSE_MS, OTHER).unref();
  return { works, stop: () => clearInterval(timer) };
}

/** The processor time of the thread, in microseconds. */
function workedUs(): number {
  const { user, system } = process.threadCpuUsage();
  return user + system;
}
