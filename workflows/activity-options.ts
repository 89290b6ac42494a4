import { ActivityCancellationType, type ActivityOptions } from "@temporalio/workflow";
import type { DispatchInput } from "./dispatch-input.ts";

/**
 * For activities that only ask the database: they go on until it answers. One whose worker was lost, or is stopped, is asked
 * again after the heartbeat's time: its run waits for it, and makes neither first attempts nor retries.
 */
export function untilAnswered({ heartbeatTimeoutMs }: DispatchInput): ActivityOptions {
  return {
    startToCloseTimeout: "10 minutes",
    heartbeatTimeout: heartbeatTimeoutMs,
    retry: { initialInterval: "1 second", maximumInterval: "30 seconds" },
  };
}

/** A worker that does not take its pump within this time is skipped. */
const TAKEN_WITHIN = "5 seconds";

/** Of a pump, which one worker alone can take. */
export function pumpOptions(
  { heartbeatTimeoutMs, pumpMs }: DispatchInput,
  worker: { taskQueue: string; name: string },
): ActivityOptions {
  return {
    taskQueue: worker.taskQueue,
    summary: worker.name,
    scheduleToStartTimeout: TAKEN_WITHIN,
    // It ends by itself, with the last response; this is for one that hangs.
    startToCloseTimeout: pumpMs + 600_000,
    heartbeatTimeout: heartbeatTimeoutMs,
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { maximumAttempts: 1 },
  };
}

/** Of the retries of a group: three attempts, as the contract demands. */
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
    // Each failure that is reported says when the next attempt is due; the interval is for a worker that was lost.
    retry: { maximumAttempts: 3, initialInterval: "5 seconds", backoffCoefficient: 1 },
  };
}
