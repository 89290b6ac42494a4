import {
  type Client,
  ScheduleAlreadyRunning,
  type ScheduleOptions,
  ScheduleOverlapPolicy,
} from "@temporalio/client";
import type { DispatchInput } from "../../workflows/dispatch-input.ts";
import type { DispatchConfig } from "../config/config.ts";
import type { TemporalNames } from "./connection/names.ts";

/** Pumps work for so long beyond the interval: the next run's take over before they end. */
const OVERLAP_MS = 15_000;
/** The shortest catch-up window Temporal takes, in milliseconds. */
const MIN_CATCH_UP_MS = 10_000;
const HOUR_MS = 3_600_000;

/** What the schedule gives each run. */
export function dispatchInput(
  config: DispatchConfig,
  names: TemporalNames,
  searchAttributes: boolean,
): DispatchInput {
  return {
    pumpMs: config.intervalMs + OVERLAP_MS,
    lingers: config.onPublish,
    heartbeatTimeoutMs: config.heartbeatTimeoutMs,
    retryInitialDelayMs: config.retryInitialDelayMs,
    retryTaskQueue: names.retryTaskQueue,
    searchAttributes,
    continueAsNewAfter: 4_000,
  };
}

/** The schedule of the minute's dispatch. */
export function ensureDispatchSchedule(
  client: Client,
  names: TemporalNames,
  config: DispatchConfig,
  searchAttributes: boolean,
): Promise<void> {
  return ensureSchedule(client, names.scheduleId, {
    spec: { intervals: [{ every: config.intervalMs }] },
    action: {
      type: "startWorkflow",
      workflowType: "dispatchPendingDeliveries",
      workflowId: names.scheduleId,
      taskQueue: names.dispatchTaskQueue,
      args: [dispatchInput(config, names, searchAttributes)],
    },
    policies: {
      // Claims are exclusive, so a run that still retries never holds up the next minute.
      overlap: ScheduleOverlapPolicy.ALLOW_ALL,
      // A minute missed is made up for by the next one; the default would replay a year of them.
      catchupWindow: Math.max(config.intervalMs, MIN_CATCH_UP_MS),
    },
  });
}

/** Starts a run at once, unless the schedule is paused; answers whether it did. */
export async function triggerDispatch(client: Client, names: TemporalNames): Promise<boolean> {
  const schedule = client.schedule.getHandle(names.scheduleId);
  const { state } = await schedule.describe();
  if (!state.paused) await schedule.trigger();
  return !state.paused;
}

/** The schedule that deletes what is older than the retention, every hour. */
export function ensureRetentionSchedule(
  client: Client,
  names: TemporalNames,
  { heartbeatTimeoutMs }: DispatchConfig,
): Promise<void> {
  return ensureSchedule(client, names.retentionScheduleId, {
    spec: { intervals: [{ every: HOUR_MS }] },
    action: {
      type: "startWorkflow",
      workflowType: "deleteExpired",
      workflowId: names.retentionScheduleId,
      taskQueue: names.dispatchTaskQueue,
      args: [{ heartbeatTimeoutMs }],
    },
    policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: HOUR_MS },
  });
}

type Definition = Pick<ScheduleOptions, "spec" | "action" | "policies">;

/**
 * Creates the schedule, or brings the existing one up to date without touching its state: one that an operator has
 * paused stays paused.
 */
async function ensureSchedule(client: Client, scheduleId: string, definition: Definition): Promise<void> {
  try {
    await client.schedule.create({ scheduleId, ...definition });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
    await client.schedule.getHandle(scheduleId).update(({ state }) => ({ ...definition, state }) as never);
  }
}
