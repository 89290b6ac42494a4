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

/** Creates or updates the schedules of the dispatch and, once an hour, of the retention. */
export async function ensureSchedules(
  client: Client,
  names: TemporalNames,
  config: DispatchConfig,
): Promise<void> {
  const { intervalMs, heartbeatTimeoutMs } = config;
  const dispatch: DispatchInput = {
    pumpMs: pumpMsOf(config),
    lingers: config.onPublish,
    heartbeatTimeoutMs,
    retryInitialDelayMs: config.retryInitialDelayMs,
    retryTaskQueue: names.retryTaskQueue,
    continueAsNewAfter: 4_000,
  };
  await ensureSchedule(client, names.scheduleId, names.dispatchTaskQueue, {
    workflowType: "dispatchPendingDeliveries",
    input: dispatch,
    everyMs: intervalMs,
    // Claims are exclusive, so a run that still retries does not delay the next one.
    overlap: ScheduleOverlapPolicy.ALLOW_ALL,
  });
  await ensureSchedule(client, names.retentionScheduleId, names.dispatchTaskQueue, {
    workflowType: "deleteExpired",
    input: { heartbeatTimeoutMs },
    everyMs: HOUR_MS,
    overlap: ScheduleOverlapPolicy.SKIP,
  });
}

/** Starts a run immediately, unless the schedule is paused. Returns whether it started. */
export async function triggerDispatch(client: Client, names: TemporalNames): Promise<boolean> {
  const schedule = client.schedule.getHandle(names.scheduleId);
  const { state } = await schedule.describe();
  if (!state.paused) await schedule.trigger();
  return !state.paused;
}

/**
 * Creates the schedule of a workflow, or updates the existing one without changing its state: a schedule paused by an operator
 * stays paused.
 */
async function ensureSchedule(
  client: Client,
  scheduleId: string,
  taskQueue: string,
  work: { workflowType: string; input: object; everyMs: number; overlap: ScheduleOverlapPolicy },
): Promise<void> {
  const { workflowType, input, everyMs, overlap } = work;
  const definition: Omit<ScheduleOptions, "scheduleId"> = {
    spec: { intervals: [{ every: everyMs }] },
    action: { type: "startWorkflow", workflowType, workflowId: scheduleId, taskQueue, args: [input] },
    // The next run makes up for a missed one. Temporal's default would replay runs of a year.
    policies: { overlap, catchupWindow: Math.max(everyMs, MIN_CATCH_UP_MS) },
  };
  try {
    await client.schedule.create({ scheduleId, ...definition });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
    await client.schedule.getHandle(scheduleId).update(({ state }) => ({ ...definition, state }) as never);
  }
}
