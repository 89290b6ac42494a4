import { Context } from "@temporalio/activity";
import type { AttemptCounts } from "../../../workflows/activities.ts";
import type { RunKey, RunTotals } from "../../../workflows/dispatch-input.ts";
import { type DeliveryEngine, noAttempts } from "../../delivery/index.ts";
import { gathering, untilAnswered } from "../../lib/pg/index.ts";
import { openRuns, type Renewal, type RunWish, renewLeases } from "../../queue/index.ts";

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
  /** The counts that are in the run's totals. Only this module sets these. */
  booked: RunTotals;
}

/**
 * Sends heartbeats for all activities of a process, and renews the leases of their runs and adds to their totals by one statement,
 * from one timer.
 */
export type KeepAlive = ReturnType<typeof createKeepAlive>;

/** Creates it without activities. */
export function createKeepAlive(
  { db, log, stopping }: Pick<DeliveryEngine, "db" | "log" | "stopping">,
  heartbeatTimeoutMs: number,
) {
  const tickMs = heartbeatTimeoutMs / TICKS_PER_TIMEOUT;
  /** The margin of a lease over heartbeats, in milliseconds: enough to detect and replace a dead worker. */
  const leaseMs = 3 * heartbeatTimeoutMs + 30_000;
  const runs = new Map<string, KnownRun>();
  const beats = new Set<() => void>();
  const working = new Set<RunWork>();
  const openRun = gathering((wishes: readonly RunWish[]) => openRuns(db, wishes), BATCH);
  const renew = gathering(async (renewals: readonly Renewal[]) => {
    await renewLeases(db, renewals);
    return [];
  }, BATCH);
  let timer: NodeJS.Timeout | undefined;
  let renewing: Promise<unknown> = Promise.resolve();

  /**
   * Runs an activity with heartbeats to Temporal from start to end. The activity may wait for the database at any time,
   * and its worker must not count as dead meanwhile.
   *
   * @param work its signal aborts when the process stops, or the activity is cancelled, also if Temporal has given it to another
   *   worker
   */
  async function heartbeats<T>(work: (stop: AbortSignal) => Promise<T>): Promise<T> {
    const context = Context.current();
    const beat = () => context.heartbeat();
    beats.add(beat);
    timer ??= setInterval(tick, tickMs);
    try {
      return await work(AbortSignal.any([stopping, context.cancellationSignal]));
    } finally {
      beats.delete(beat);
      if (beats.size === 0) {
        clearInterval(timer);
        timer = undefined;
      }
    }
  }

  async function open({ firstRunId }: RunKey): Promise<KnownRun> {
    const { workflowId } = Context.current().info.workflowExecution as { workflowId: string };
    const name = `${workflowId} ${firstRunId}`;
    const began = performance.now();
    const known = runs.get(name);
    if (known && known.leaseUntil > began + leaseMs - 2 * tickMs) return known;
    const { id, ageMs } = await untilAnswered(() => openRun({ workflowId, firstRunId, leaseMs }));
    const run = runs.get(name) ?? { id, started: began - ageMs, leaseUntil: 0 };
    run.leaseUntil = Math.max(run.leaseUntil, began + leaseMs);
    for (const [other, { leaseUntil }] of runs) if (leaseUntil < began) runs.delete(other);
    runs.set(name, run);
    return run;
  }

  function tick(): void {
    for (const beat of beats) beat();
    renewing = renewing
      .then(() => Promise.all([...working].map((work) => renewLease(work, leaseMs))))
      .catch((err) => log.warn({ err }, "renewing the leases of runs failed"));
  }

  /** Adds what is missing in the run's totals, and renews its lease if it ends too early. */
  async function end(work: RunWork): Promise<void> {
    const { run, counts, booked, keepMs } = work;
    const isKept = keepMs === 0 || run.leaseUntil >= performance.now() + keepMs;
    if (isKept && counts.sent === booked.sent) return;
    await untilAnswered(() => renewLease(work, isKept ? 0 : keepMs + SPARE_LEASE_MS));
  }

  /** Renews the lease of an activity's run, and adds to its totals. Concurrent calls share a statement. */
  async function renewLease(work: RunWork, forMs: number): Promise<void> {
    const { run, booked } = work;
    const counts = { ...work.counts };
    const began = performance.now();
    await renew({
      runId: run.id,
      leaseMs: forMs,
      sent: counts.sent - booked.sent,
      delivered: counts.delivered - booked.delivered,
      failed: counts.failed - booked.failed,
    });
    work.booked = counts;
    run.leaseUntil = Math.max(run.leaseUntil, began + forMs);
  }

  return {
    leaseMs,
    heartbeats,

    /** Runs an activity of a run with heartbeats. Holds the run's lease meanwhile. */
    onRun<T>(key: RunKey, perform: (work: RunWork, stop: AbortSignal) => Promise<T>): Promise<T> {
      return heartbeats(async (stop) => {
        const run = await open(key);
        const work: RunWork = { run, counts: noAttempts(), booked: noAttempts(), keepMs: 0 };
        working.add(work);
        try {
          return await perform(work, stop);
        } finally {
          working.delete(work);
          await renewing;
          await end(work);
        }
      });
    },
  };
}
