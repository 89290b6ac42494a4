import {
  type Client,
  ScheduleAlreadyRunning,
  type ScheduleOptions,
  ScheduleOverlapPolicy,
} from "@temporalio/client";
import type { DispatchInput } from "../../../workflows/dispatch-input.ts";
import type { DispatchConfig } from "../../config/config.ts";
import type { TemporalNames } from "../connection/names.ts";

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

/** The input of each scheduled run. */
function dispatchInput(config: DispatchConfig, names: TemporalNames): DispatchInput {
  return {
    pumpMs: pumpMsOf(config),
    lingers: config.onPublish,
    heartbeatTimeoutMs: config.heartbeatTimeoutMs,
    retryInitialDelayMs: config.retryInitialDelayMs,
    retryTaskQueue: names.retryTaskQueue,
    continueAsNewAfter: 4_000,
  };
}

/** Creates or updates the schedules of the dispatch and, once an hour, of the retention. */
export async function ensureSchedules(
  client: Client,
  names: TemporalNames,
  config: DispatchConfig,
): Promise<void> {
  await ensureSchedule(client, names.scheduleId, {
    spec: { intervals: [{ every: config.intervalMs }] },
    action: {
      type: "startWorkflow",
      workflowType: "dispatchPendingDeliveries",
      workflowId: names.scheduleId,
      taskQueue: names.dispatchTaskQueue,
      args: [dispatchInput(config, names)],
    },
    policies: {
      // Claims are exclusive, so a run that still retries does not delay the next one.
      overlap: ScheduleOverlapPolicy.ALLOW_ALL,
      // The next run makes up for a missed one. Temporal's default would replay runs of a year.
      catchupWindow: Math.max(config.intervalMs, MIN_CATCH_UP_MS),
    },
  });
  await ensureSchedule(client, names.retentionScheduleId, {
    spec: { intervals: [{ every: HOUR_MS }] },
    action: {
      type: "startWorkflow",
      workflowType: "deleteExpired",
      workflowId: names.retentionScheduleId,
      taskQueue: names.dispatchTaskQueue,
      args: [{ heartbeatTimeoutMs: config.heartbeatTimeoutMs }],
    },
    policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: HOUR_MS },
  });
}

/** Starts a run immediately, unless the schedule is paused. Returns whether it started. */
export async function triggerDispatch(client: Client, names: TemporalNames): Promise<boolean> {
  const schedule = client.schedule.getHandle(names.scheduleId);
  const { state } = await schedule.describe();
  if (!state.paused) await schedule.trigger();
  return !state.paused;
}

type Definition = Pick<ScheduleOptions, "spec" | "action" | "policies">;

/**
 * Creates the schedule, or updates the existing one without changing its state: a schedule paused by an operator
 * stays paused.
 */
async function ensureSchedule(client: Client, scheduleId: string, definition: Definition): Promise<void> {
  try {
    await client.schedule.create({ scheduleId, ...definition });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
    await client.schedule.getHandle(scheduleId).update(({ state }) => ({ ...definition, state }) as never);
  }
}
