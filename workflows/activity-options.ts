import { ActivityCancellationType, type ActivityOptions } from "@temporalio/workflow";
import type { DispatchInput } from "./dispatch-input.ts";

/** For activities that only ask the database: they go on until it answers. */
export const UNTIL_ANSWERED = {
  initialInterval: "1 second",
  maximumInterval: "30 seconds",
} satisfies ActivityOptions["retry"];

/**
 * Of `deliverPending`, whichever workflow pumps: its three attempts are for our own faults.
 *
 * @param by `here`: the worker that has the workflow, if it has room, which is the shortest way; `anyone`: several
 *   would otherwise all go to that one
 */
export function pumpOptions(input: DispatchInput, by: "here" | "anyone"): ActivityOptions {
  return {
    allowEagerDispatch: by === "here",
    startToCloseTimeout: "10 minutes",
    heartbeatTimeout: input.heartbeatTimeoutMs,
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { maximumAttempts: 3, initialInterval: "1 second" },
  };
}
