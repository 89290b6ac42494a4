import { ActivityCancellationType, type ActivityOptions } from "@temporalio/workflow";
import type { DispatchInput } from "./dispatch-input.ts";

/**
 * The options of activities that only query the database: they are retried until it answers. If the worker is lost or stopped,
 * the activity runs elsewhere after `heartbeatTimeoutMs`, because its run waits for it.
 */
export function untilAnswered({ heartbeatTimeoutMs }: DispatchInput): ActivityOptions {
  return {
    startToCloseTimeout: "10 minutes",
    heartbeatTimeout: heartbeatTimeoutMs,
    retry: { initialInterval: "1 second", maximumInterval: "30 seconds" },
  };
}

/** The time after which a worker that does not take its pump is skipped. */
const SCHEDULE_TO_START_TIMEOUT = "5 seconds";

/** The options of a pump, which only one worker can take. */
export function pumpOptions(
  { heartbeatTimeoutMs, pumpMs }: DispatchInput,
  worker: { taskQueue: string; name: string },
): ActivityOptions {
  return {
    taskQueue: worker.taskQueue,
    summary: worker.name,
    scheduleToStartTimeout: SCHEDULE_TO_START_TIMEOUT,
    // A pump ends by itself with its last response. This timeout ends one that hangs.
    startToCloseTimeout: pumpMs + 600_000,
    heartbeatTimeout: heartbeatTimeoutMs,
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { maximumAttempts: 1 },
  };
}

/** The options of the retries of a group: three attempts, as the contract requires. */
export function retryOptions(
  { heartbeatTimeoutMs, retryTaskQueue }: DispatchInput,
  summary: string,
): ActivityOptions {
  return {
    taskQueue: retryTaskQueue,
    summary,
    startToCloseTimeout: "1 hour",
    heartbeatTimeout: heartbeatTimeoutMs,
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    // Reported failures contain the delay of the next attempt. The interval applies if a worker was lost.
    retry: { maximumAttempts: 3, initialInterval: "5 seconds", backoffCoefficient: 1 },
  };
}
