import { Context } from "@temporalio/activity";
import type { AttemptCounts } from "../../workflows/activities.ts";
import { untilAnswered } from "../db/faults.ts";
import type { DeliveryEngine } from "../delivery/engine.ts";
import { noCounts } from "../delivery/recorder.ts";

/** Called at the start with the counts, which are updated in place. */
export type Report = (counts: Readonly<AttemptCounts>) => void;

/**
 * Runs an activity with heartbeats to Temporal from start to end. The activity may wait for the database at any time,
 * and its worker must not count as dead meanwhile.
 *
 * @param work receives a function that sets the details of the heartbeats, an object that may be updated in place
 */
export async function withHeartbeats<T>(
  heartbeatTimeoutMs: number,
  work: (tell: (details: object) => void) => Promise<T>,
): Promise<T> {
  const context = Context.current();
  let told: object | undefined;
  const timer = setInterval(() => context.heartbeat(told && { ...told }), heartbeatTimeoutMs / 4);
  try {
    return await work((details) => {
      told = details;
    });
  } finally {
    clearInterval(timer);
  }
}

/**
 * Runs an activity's work while renewing the run's lease and adding to its totals in the database.
 *
 * @param renewEveryMs the interval between renewals, in milliseconds
 * @param work receives a signal that aborts on cancellation, also when Temporal has given the activity to another
 *   worker
 */
export async function keepAlive<T>(
  engine: DeliveryEngine,
  runId: number,
  leaseMs: number,
  renewEveryMs: number,
  work: (report: Report, cancelled: AbortSignal) => Promise<T>,
): Promise<T> {
  let counts: Readonly<AttemptCounts> = noCounts();
  let booked = { sent: 0, delivered: 0, failed: 0 };

  async function renew(): Promise<void> {
    const { sent, delivered, failed } = counts;
    const more = {
      sent: sent - booked.sent,
      delivered: delivered - booked.delivered,
      failed: failed - booked.failed,
    };
    await engine.statements.renewLease({ runId, leaseMs, more });
    booked = { sent, delivered, failed };
  }

  let renewing: Promise<void> = Promise.resolve();
  const timer = setInterval(() => {
    renewing = renewing
      .then(renew)
      .catch((error) => engine.log.warn({ err: error }, "renewing the run lease failed"));
  }, renewEveryMs);
  try {
    return await work((live) => {
      counts = live;
    }, Context.current().cancellationSignal);
  } finally {
    clearInterval(timer);
    await renewing;
    await untilAnswered(renew);
  }
}
