import { Context } from "@temporalio/activity";
import type { AttemptCounts } from "../../workflows/activities.ts";
import type { RunKey, RunTotals } from "../../workflows/dispatch-input.ts";
import { untilAnswered } from "../db/faults.ts";
import { gathering } from "../db/gathering.ts";
import { type OpenRun, openRuns, type Renewal, type RunWish, renewLeases } from "../db/queue/runs.ts";
import { noAttempts } from "../delivery/claim-owner.ts";
import type { DeliveryEngine } from "../delivery/engine.ts";

/** Batch limits. One statement of each kind runs at a time: statements of one run lock the same row. */
const BATCH = { most: 500, atOnce: 1 };
/** The number of heartbeats and renewals of leases within HEARTBEAT_TIMEOUT. */
const TICKS_PER_TIMEOUT = 4;
/** The time added to a lease that is renewed because the run waits, in milliseconds, so that the next waits need no renewal. */
const SPARE_LEASE_MS = 30_000;

/** A run of which this process knows the row. */
interface KnownRun {
  readonly id: number;
  /** Its start by the monotonic clock, in milliseconds. */
  readonly started: number;
  /** The end of its lease by the monotonic clock, in milliseconds. It may have been renewed by others since. */
  leaseUntil: number;
}

/** An activity that works for a run. */
export interface RunWork {
  readonly run: KnownRun;
  /** The counts of the activity, updated in place. They are added to the run's totals. */
  readonly counts: AttemptCounts;
  /** The time to which the run's lease is extended at the end of the activity, in milliseconds. Defaults to the lease as it is. */
  keepMs: number;
  /** The counts that are in the run's totals. Only KeepAlive sets these. */
  booked: RunTotals;
}

/**
 * Sends heartbeats for all activities of a process, and renews the leases of their runs and adds to their totals by one statement,
 * from one timer.
 */
export class KeepAlive {
  readonly #engine: Pick<DeliveryEngine, "db" | "log" | "stopping">;
  readonly #tickMs: number;
  /** The margin of a lease over heartbeats, in milliseconds: enough to detect and replace a dead worker. */
  readonly leaseMs: number;
  readonly #runs = new Map<string, KnownRun>();
  readonly #beats = new Set<() => void>();
  readonly #working = new Set<RunWork>();
  readonly #openRun: (wish: RunWish) => Promise<OpenRun>;
  readonly #renew: (renewal: Renewal) => Promise<void>;
  #timer: NodeJS.Timeout | undefined;
  #renewing: Promise<void> = Promise.resolve();

  constructor(engine: Pick<DeliveryEngine, "db" | "log" | "stopping">, heartbeatTimeoutMs: number) {
    const { db } = engine;
    this.#engine = engine;
    this.#tickMs = heartbeatTimeoutMs / TICKS_PER_TIMEOUT;
    this.leaseMs = 3 * heartbeatTimeoutMs + 30_000;
    this.#openRun = gathering((wishes) => openRuns(db, wishes), BATCH);
    this.#renew = gathering(async (renewals) => {
      await renewLeases(db, renewals);
      return [];
    }, BATCH);
  }

  /**
   * Runs an activity with heartbeats to Temporal from start to end. The activity may wait for the database at any time,
   * and its worker must not count as dead meanwhile.
   *
   * @param work its signal aborts when the process stops, or the activity is cancelled, also if Temporal has given it to another
   *   worker
   */
  async heartbeats<T>(work: (stop: AbortSignal) => Promise<T>): Promise<T> {
    const context = Context.current();
    const beat = () => context.heartbeat();
    this.#beats.add(beat);
    this.#timer ??= setInterval(() => this.#tick(), this.#tickMs);
    try {
      return await work(AbortSignal.any([this.#engine.stopping, context.cancellationSignal]));
    } finally {
      this.#beats.delete(beat);
      if (this.#beats.size === 0) {
        clearInterval(this.#timer);
        this.#timer = undefined;
      }
    }
  }

  /** Runs an activity of a run with heartbeats. Holds the run's lease meanwhile. */
  onRun<T>(key: RunKey, perform: (work: RunWork, stop: AbortSignal) => Promise<T>): Promise<T> {
    return this.heartbeats(async (stop) => {
      const run = await this.#open(key);
      const work: RunWork = { run, counts: noAttempts(), booked: noAttempts(), keepMs: 0 };
      this.#working.add(work);
      try {
        return await perform(work, stop);
      } finally {
        this.#working.delete(work);
        await this.#renewing;
        await this.#end(work);
      }
    });
  }

  async #open({ firstRunId }: RunKey): Promise<KnownRun> {
    const { workflowId } = Context.current().info.workflowExecution as { workflowId: string };
    const name = `${workflowId} ${firstRunId}`;
    const began = performance.now();
    const known = this.#runs.get(name);
    if (known && known.leaseUntil > began + this.leaseMs - 2 * this.#tickMs) return known;
    const { leaseMs } = this;
    const { id, ageMs } = await untilAnswered(() => this.#openRun({ workflowId, firstRunId, leaseMs }));
    const run = this.#runs.get(name) ?? { id, started: began - ageMs, leaseUntil: 0 };
    run.leaseUntil = Math.max(run.leaseUntil, began + leaseMs);
    for (const [other, { leaseUntil }] of this.#runs) if (leaseUntil < began) this.#runs.delete(other);
    this.#runs.set(name, run);
    return run;
  }

  #tick(): void {
    for (const beat of this.#beats) beat();
    this.#renewing = this.#renewing
      .then(() => Promise.all([...this.#working].map((work) => this.#renewLease(work, this.leaseMs))))
      .then(
        () => {},
        (err) => this.#engine.log.warn({ err }, "renewing the leases of runs failed"),
      );
  }

  /** Adds what is missing in the run's totals, and renews its lease if it ends too early. */
  async #end(work: RunWork): Promise<void> {
    const { run, counts, booked, keepMs } = work;
    const isKept = keepMs === 0 || run.leaseUntil >= performance.now() + keepMs;
    if (isKept && counts.sent === booked.sent) return;
    await untilAnswered(() => this.#renewLease(work, isKept ? 0 : keepMs + SPARE_LEASE_MS));
  }

  /** Renews the lease of an activity's run, and adds to its totals. Concurrent calls share a statement. */
  async #renewLease(work: RunWork, leaseMs: number): Promise<void> {
    const { run, booked, counts } = work;
    const { sent, delivered, failed } = counts;
    const began = performance.now();
    const more = {
      sent: sent - booked.sent,
      delivered: delivered - booked.delivered,
      failed: failed - booked.failed,
    };
    await this.#renew({ runId: run.id, leaseMs, ...more });
    work.booked = { sent, delivered, failed };
    run.leaseUntil = Math.max(run.leaseUntil, began + leaseMs);
  }
}
