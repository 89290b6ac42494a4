import {
  type Client,
  ScheduleAlreadyRunning,
  type ScheduleOptions,
  ScheduleOverlapPolicy,
} from "@temporalio/client";
import type { DispatchInput } from "../../workflows/dispatch-input.ts";
import type { DispatchConfig } from "../config/index.ts";
import type { TemporalNames } from "../temporal/index.ts";

/**
 * The time that pumps work beyond the interval, in milliseconds, so that the next run's pumps take over before they
 * end.
 */
const OVERLAP_MS = 15_000;
/** The minimum catch-up window accepted by Temporal, in milliseconds. */
const MIN_CATCH_UP_MS = 10_000;
const HOUR_MS = 3_600_000;

/** The maximum duration of a run's pumps, in milliseconds. */
export const pumpMsOf = ({ intervalMs }: DispatchConfig) => intervalMs + OVERLAP_MS;

/**
 * Creates the schedules of the dispatch and, once an hour, of the retention; or updates existing ones without changing their state:
 * a schedule paused by an operator stays paused.
 */
export async function ensureSchedules(
  client: Client,
  names: TemporalNames,
  config: DispatchConfig,
): Promise<void> {
  const { intervalMs, heartbeatTimeoutMs, retryInitialDelayMs } = config;
  const { dispatchTaskQueue: taskQueue, retryTaskQueue } = names;

  async function ensure(
    workflowId: string,
    workflow: { workflowType: string; args: object[] },
    every: number,
    overlap: ScheduleOverlapPolicy,
  ): Promise<void> {
    const definition: Omit<ScheduleOptions, "scheduleId"> = {
      spec: { intervals: [{ every }] },
      action: { type: "startWorkflow", workflowId, taskQueue, ...workflow },
      // The next run makes up for a missed one. Temporal's default would replay runs of a year.
      policies: { overlap, catchupWindow: Math.max(every, MIN_CATCH_UP_MS) },
    };
    try {
      await client.schedule.create({ scheduleId: workflowId, ...definition });
    } catch (error) {
      if (!(error instanceof ScheduleAlreadyRunning)) throw error;
      const schedule = client.schedule.getHandle(workflowId);
      await schedule.update(({ state }) => ({ ...definition, state }) as never);
    }
  }

  const dispatch: DispatchInput = {
    pumpMs: pumpMsOf(config),
    lingers: config.onPublish,
    heartbeatTimeoutMs,
    retryInitialDelayMs,
    retryTaskQueue,
    continueAsNewAfter: 4_000,
  };
  const dispatching = { workflowType: "dispatchPendingDeliveries", args: [dispatch] };
  // Claims are exclusive, so a run that still retries does not delay the next one.
  await ensure(names.scheduleId, dispatching, intervalMs, ScheduleOverlapPolicy.ALLOW_ALL);
  const retention = { workflowType: "deleteExpired", args: [{ heartbeatTimeoutMs }] };
  await ensure(names.retentionScheduleId, retention, HOUR_MS, ScheduleOverlapPolicy.SKIP);
}

/** Starts a run immediately, unless the schedule is paused. Returns whether it started. */
export async function triggerDispatch(client: Client, names: TemporalNames): Promise<boolean> {
  const schedule = client.schedule.getHandle(names.scheduleId);
  const { state } = await schedule.describe();
  if (!state.paused) await schedule.trigger();
  return !state.paused;
}
