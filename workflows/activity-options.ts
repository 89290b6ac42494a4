import type { ActivityOptions } from "@temporalio/workflow";
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
