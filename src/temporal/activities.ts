import { ApplicationFailure, Context } from "@temporalio/activity";
import type { DispatchInput, DispatchReport, UndeliveredList } from "../../workflows/dispatch-input.ts";
import { DELIVERIES_FAILED, UNDELIVERED } from "../../workflows/dispatch-input.ts";
import { untilAnswered } from "../db/faults.ts";
import { adoptRetries, assignGroups, leavePaused } from "../db/queue/retry-groups.ts";
import { closeExpiredRuns, closeRun } from "../db/queue/runs.ts";
import type { DeliveryEngine } from "../delivery/engine.ts";
import type { FlowCounts } from "../delivery/flow-parts.ts";
import { type PumpResult, pump } from "../delivery/pump.ts";
import { retryPass } from "../delivery/retry-pass.ts";
import type { createDeleteExpired } from "./delete-expired.ts";
import { keepAlive } from "./keep-alive.ts";
import { summariseCounts, summariseGroups, summarisePass } from "./summaries.ts";

/** Names the run an activity works for. */
export interface RunArgument {
  /** When the run is another workflow's, which handed it over; otherwise that of the activity's own workflow. */
  workflowId?: string;
  firstRunId: string;
}

/** How long one pump claims, in milliseconds. */
const PUMP_MS = 30_000;

/** What the workflows can do. */
export type Activities = ReturnType<typeof createActivities> & {
  deleteExpired: ReturnType<typeof createDeleteExpired>;
};

/** The activities of a process, over its delivery engine. */
export function createActivities(
  engine: DeliveryEngine,
  timing: Pick<DispatchInput, "heartbeatTimeoutMs" | "retryInitialDelayMs" | "retryBackoffCoefficient">,
) {
  const { db, statements, stopping } = engine;
  /** Long enough for a dead worker to be noticed and replaced. */
  const leaseMargin = 3 * timing.heartbeatTimeoutMs + 30_000;

  /** Answers the id of the run's row. */
  function open(run: RunArgument, leaseMs: number): Promise<number> {
    const { workflowExecution } = Context.current().info;
    const { workflowId } = workflowExecution as { workflowId: string };
    const key = { workflowId: run.workflowId ?? workflowId, firstRunId: run.firstRunId };
    return untilAnswered(() => statements.openRun({ ...key, leaseMs }));
  }

  return {
    /** First attempts of what is pending, for up to half a minute. */
    async deliverPending(run: RunArgument): Promise<PumpResult & { summary: string }> {
      const runId = await open(run, leaseMargin);
      const ended = await untilAnswered(() => closeExpiredRuns(db));
      if (ended > 0) engine.log.warn({ runs: ended }, "gave back the deliveries of runs whose lease ran out");
      const result = await keepAlive(
        engine,
        runId,
        leaseMargin,
        timing.heartbeatTimeoutMs,
        (report, cancelled) =>
          pump(engine, runId, AbortSignal.any([stopping, cancelled, AbortSignal.timeout(PUMP_MS)]), report),
      );
      return { ...result, summary: summariseCounts(result) };
    },

    /** What the first attempts left, in groups. */
    async listUndelivered(run: RunArgument): Promise<UndeliveredList> {
      const runId = await open(run, leaseMargin);
      await untilAnswered(() => leavePaused(db, runId));
      await untilAnswered(() => adoptRetries(db, runId));
      const failing = await untilAnswered(() => assignGroups(db, runId));
      const list = summariseGroups(failing);
      const longest = Math.max(0, ...list.groups.map(({ delayMs }) => delayMs));
      await untilAnswered(() => statements.renewLease({ runId, leaseMs: longest + leaseMargin }));
      return list;
    },

    /**
     * One retry of each undelivered delivery of the group. Throws while any remains, with the time until the next
     * is due, and at the end when any has failed for good, so that an operator sees it.
     */
    async retryDeliveries(run: RunArgument & { group: number }): Promise<FlowCounts & { summary: string }> {
      const { attempt } = Context.current().info;
      const afterCrash = timing.retryInitialDelayMs * timing.retryBackoffCoefficient ** attempt;
      const leaseMs = afterCrash + leaseMargin;
      const runId = await open(run, leaseMs);
      const result = await keepAlive(engine, runId, leaseMs, timing.heartbeatTimeoutMs, (report, cancelled) =>
        retryPass(engine, runId, run.group, AbortSignal.any([stopping, cancelled]), report),
      );
      const { status, complete, lastFailure: _, ...counts } = result;
      if (status.open > 0) {
        // Stragglers of a pass that was cut short are due now; another worker takes them up.
        const delayMs = complete ? Math.max(1, status.delayMs) : 100;
        await untilAnswered(() => statements.renewLease({ runId, leaseMs: delayMs + leaseMargin }));
        throw ApplicationFailure.create({
          type: UNDELIVERED,
          message: summarisePass(result),
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
      return { ...counts, summary: summariseCounts(counts) };
    },

    /** Ends the run and answers its account. */
    async closeRun(run: RunArgument): Promise<DispatchReport> {
      const runId = await open(run, leaseMargin);
      const totals = await untilAnswered(() => closeRun(db, runId));
      return { summary: summariseCounts(totals), ...totals };
    },
  };
}
