import { ApplicationFailure, Context } from "@temporalio/activity";
import type { Activities } from "../../workflows/activities.ts";
import { countsInWords } from "../../workflows/counts-in-words.ts";
import type { DispatchInput, RunKey } from "../../workflows/dispatch-input.ts";
import { DELIVERIES_FAILED, UNDELIVERED } from "../../workflows/dispatch-input.ts";
import { listHeldBack } from "../db/circuit-breaker/held.ts";
import { untilAnswered } from "../db/faults.ts";
import { adoptRetries, assignGroups, leavePaused } from "../db/queue/retry-groups.ts";
import { abandonRun, closeExpiredRuns, closeRun, isYoungerThan } from "../db/queue/runs.ts";
import { listLiveWorkers } from "../db/queue/workers.ts";
import type { DeliveryEngine } from "../delivery/engine.ts";
import { keepAlive, withHeartbeats } from "./keep-alive.ts";
import { MAX_HELD_BACK, summariseGroups, summariseHeldBack, summarisePass } from "./summaries.ts";

/** The delay before another worker retries a stopped pass, in milliseconds. */
const STOPPED_RETRY_DELAY_MS = 1_000;

/** The time by which a later failure must be due earlier for the workflow to wait, in milliseconds. */
const MIN_EARLIER_MS = 5_000;
/** The age of a run up to which its workflow waits, in milliseconds. Each time adds some events to the history. */
const MAX_WAKING_MS = 600_000;

/** Times of the activities, in milliseconds. */
export interface ActivityTiming
  extends Pick<DispatchInput, "heartbeatTimeoutMs" | "retryInitialDelayMs" | "pumpMs"> {
  /** The time from a run's start in which its pumps wait for events; 0 if they do not linger. */
  lingerMs: number;
}

/** Creates the activities of a process on its delivery engine. */
export function createActivities(
  engine: DeliveryEngine,
  timing: ActivityTiming,
): Omit<Activities, "deleteExpired" | "readSearchable" | "replay" | "pauseReplay"> {
  const { db, statements, stopping } = engine;
  const { heartbeatTimeoutMs, retryInitialDelayMs, pumpMs, lingerMs } = timing;
  /** The margin of the lease over heartbeats, in milliseconds: enough to detect and replace a dead worker. */
  const leaseMargin = 3 * heartbeatTimeoutMs + 30_000;
  const renewEveryMs = heartbeatTimeoutMs / 4;
  // Within the first retry delay no delivery is due twice, so one attempt of the activity makes at most one attempt
  // per delivery.
  const passOptions = { horizonMs: Math.min(pumpMs, retryInitialDelayMs), forMs: pumpMs };

  /** Returns the id of the run's row. */
  function open({ firstRunId }: RunKey, leaseMs: number): Promise<number> {
    const { workflowExecution } = Context.current().info;
    const { workflowId } = workflowExecution as { workflowId: string };
    return untilAnswered(() => statements.openRun({ workflowId, firstRunId, leaseMs }));
  }

  /**
   * Whether another delivery of the run may fail, and be due, before a pass that begins so much later. The workflow then waits for
   * it, because an activity that waits for its next attempt cannot be woken.
   */
  async function mayBeWoken(runId: number, delayMs: number): Promise<boolean> {
    if (lingerMs === 0 || delayMs < retryInitialDelayMs + MIN_EARLIER_MS) return false;
    return untilAnswered(() => isYoungerThan(db, runId, Math.min(lingerMs, MAX_WAKING_MS)));
  }

  return {
    deliverPending({ lingers, forMs, ...run }) {
      return withHeartbeats(heartbeatTimeoutMs, async (tell) => {
        const runId = await open(run, leaseMargin);
        const ended = await untilAnswered(() => closeExpiredRuns(db));
        if (ended > 0) engine.instruments.leasesExpired.add(ended, { holder: "run" });
        if (ended > 0)
          engine.log.warn({ runs: ended }, "gave back the deliveries of runs whose lease ran out");
        const result = await keepAlive(engine, runId, leaseMargin, renewEveryMs, (report, cancelled) =>
          engine.pumps.run(runId, { lingers, forMs }, AbortSignal.any([stopping, cancelled]), (counts) => {
            report(counts);
            tell(counts);
          }),
        );
        return { ...result, summary: countsInWords(result) };
      });
    },

    listUndelivered(run) {
      return withHeartbeats(heartbeatTimeoutMs, async () => {
        const runId = await open(run, leaseMargin);
        await untilAnswered(() => leavePaused(db, runId));
        await untilAnswered(() => adoptRetries(db, runId));
        const failing = await untilAnswered(() => assignGroups(db, runId));
        await engine.lease.start();
        const workers = await untilAnswered(() => listLiveWorkers(db));
        const heldBack = await untilAnswered(() => listHeldBack(db, MAX_HELD_BACK));
        const list = { ...summariseGroups(failing), workers, ...summariseHeldBack(heldBack) };
        const longest = Math.max(0, ...list.groups.map(({ delayMs }) => delayMs));
        await untilAnswered(() => statements.renewLease({ runId, leaseMs: longest + leaseMargin }));
        return list;
      });
    },

    retryDeliveries({ group, of: _, ...run }) {
      return withHeartbeats(heartbeatTimeoutMs, async (tell) => {
        const runId = await open(run, leaseMargin);
        const result = await keepAlive(engine, runId, leaseMargin, renewEveryMs, (report, cancelled) =>
          engine.retries.run(
            { runId, group },
            passOptions,
            AbortSignal.any([stopping, cancelled]),
            (counts) => {
              report(counts);
              tell(counts);
            },
          ),
        );
        const { status, complete, lastFailure: _, ...counts } = result;
        if (status.open > 0) {
          const delayMs = Math.max(complete ? 1 : STOPPED_RETRY_DELAY_MS, status.delayMs);
          await untilAnswered(() => statements.renewLease({ runId, leaseMs: delayMs + leaseMargin }));
          throw ApplicationFailure.create({
            type: UNDELIVERED,
            message: summarisePass(result),
            nonRetryable: await mayBeWoken(runId, delayMs),
            nextRetryDelay: delayMs,
            details: [{ delayMs }],
          });
        }
        if (counts.failed > 0) {
          throw ApplicationFailure.create({
            type: DELIVERIES_FAILED,
            message: summarisePass(result),
            nonRetryable: true,
          });
        }
        return { ...counts, summary: countsInWords(counts) };
      });
    },

    closeRun({ abandon = false, ...run }) {
      return withHeartbeats(heartbeatTimeoutMs, async () => {
        const runId = await open(run, leaseMargin);
        const { open: left, ...totals } = await untilAnswered(() =>
          (abandon ? abandonRun : closeRun)(db, runId),
        );
        if (left === 0 && totals.sent > 0) {
          const { sent: attempts, delivered, failed, putBack } = totals;
          const retried = attempts - delivered - failed;
          const { workflowId } = Context.current().info.workflowExecution as { workflowId: string };
          engine.log.info(
            { workflowId, attempts, delivered, retried, failed, putBack },
            "dispatch run ended",
          );
        }
        return { report: { summary: countsInWords(totals, "retried"), ...totals }, open: left };
      });
    },
  };
}
