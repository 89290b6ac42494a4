import type { Counter } from "@opentelemetry/api";
import type { Logger } from "pino";
import { BOTTLENECKS, type BottleneckCause } from "../../contract/stats/bottlenecks.ts";
import type { Clock } from "../../lib/process/index.ts";
import { SAMPLE_MS } from "./failing-share.ts";

/** The thread utilization, 0 to 1, above which queued deliveries wait for the thread. */
const BUSY = 0.9;
/** The period over which the time by cause is summed, in milliseconds. */
const MINUTE_MS = 60_000;

/** What a sender knows at a sample. */
export interface Situation {
  /** Whether deliveries are queued whose receivers have room. */
  isWaiting: boolean;
  /** The cause that prevents every start; undefined without one. */
  heldBy: BottleneckCause | undefined;
  /** The thread utilization, 0 to 1. */
  utilization: number;
}

/**
 * Finds the part of the service that delays deliveries whose receivers have room. Counts the time by cause, and logs the cause that lasted
 * for at least half of a minute.
 */
export class Bottlenecks {
  readonly #clock: Pick<Clock, "now">;
  readonly #log: Logger;
  readonly #seconds: Pick<Counter, "add">;
  /** The waits for the database that are in progress, the oldest first. */
  readonly #waits = new Set<{ since: number }>();
  #sampledAt: number;
  #minuteAt: number;
  /** The time by cause in the current minute, in milliseconds. */
  readonly #heldMs = new Map<BottleneckCause, number>();
  /** The cause that lasted for at least half of the last whole minute; null without one. */
  current: BottleneckCause | null = null;

  /** @param seconds counts the time by cause */
  constructor(clock: Pick<Clock, "now">, log: Logger, seconds: Pick<Counter, "add">) {
    this.#clock = clock;
    this.#log = log;
    this.#seconds = seconds;
    this.#sampledAt = clock.now();
    this.#minuteAt = this.#sampledAt;
  }

  /** Waits for a statement that fills the queue. From `SAMPLE_MS` on, the wait counts as `database`, unless queued deliveries wait. */
  async waitFor<T>(statement: Promise<T>): Promise<T> {
    const wait = { since: this.#clock.now() };
    this.#waits.add(wait);
    try {
      return await statement;
    } finally {
      this.#waits.delete(wait);
    }
  }

  /** Must be called every `SAMPLE_MS`. */
  sample(situation: Situation): void {
    const now = this.#clock.now();
    const cause = this.#cause(situation, now);
    if (cause) {
      const heldMs = now - this.#sampledAt;
      this.#seconds.add(heldMs / 1_000, { cause });
      this.#heldMs.set(cause, heldMs + (this.#heldMs.get(cause) ?? 0));
    }
    this.#sampledAt = now;
    if (now - this.#minuteAt >= MINUTE_MS) this.#endMinute(now);
  }

  #cause({ isWaiting, heldBy, utilization }: Situation, now: number): BottleneckCause | undefined {
    const [longest] = this.#waits;
    const isClaiming = longest !== undefined && now - longest.since >= SAMPLE_MS;
    if (!isWaiting && !isClaiming) return undefined;
    // Reported even if the thread is busy: fewer handshakes also relieve the thread. The remedies of other causes would not.
    if (isWaiting && heldBy === "handshakes") return heldBy;
    if (utilization > BUSY) return "thread";
    return isWaiting ? heldBy : "database";
  }

  #endMinute(now: number): void {
    const minuteMs = now - this.#minuteAt;
    const most = [...this.#heldMs].find(([, heldMs]) => heldMs >= minuteMs / 2);
    this.#minuteAt = now;
    this.#heldMs.clear();
    this.current = most?.[0] ?? null;
    if (!most) return;
    const [cause, heldMs] = most;
    const { problem, remedy } = BOTTLENECKS[cause];
    this.#log.warn({ cause, percent: Math.round((100 * heldMs) / minuteMs) }, `${problem}. ${remedy}`);
  }
}
