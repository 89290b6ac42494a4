import { Context } from "@temporalio/activity";
import { untilAnswered } from "../db/faults.ts";
import { type Counts, noCounts } from "../delivery/counts.ts";
import type { DeliveryEngine } from "../delivery/engine.ts";

/** Told at the start: where its counts can be read at any time. */
export type Report = (counts: Readonly<Counts>) => void;

/**
 * Runs an activity's work with heartbeats to Temporal, and with the run's lease and totals kept up to date in the
 * database.
 *
 * @param work gets the signal of a cancel, which also comes when Temporal has given the activity to another worker
 */
export async function keepAlive<T>(
  engine: DeliveryEngine,
  runId: number,
  leaseMs: number,
  heartbeatTimeoutMs: number,
  work: (report: Report, cancelled: AbortSignal) => Promise<T>,
): Promise<T> {
  const context = Context.current();
  let counts: Readonly<Counts> = noCounts();
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
  const heartbeat = setInterval(() => {
    context.heartbeat({ ...counts });
    renewing = renewing
      .then(renew)
      .catch((error) => engine.log.warn({ err: error }, "the lease could not be renewed"));
  }, heartbeatTimeoutMs / 4);
  try {
    return await work((live) => {
      counts = live;
    }, context.cancellationSignal);
  } finally {
    clearInterval(heartbeat);
    await renewing;
    await untilAnswered(renew);
  }
}
