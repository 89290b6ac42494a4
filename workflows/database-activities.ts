import { proxyActivities } from "@temporalio/workflow";
import type { Activities } from "./activities.ts";
import type { DispatchInput } from "./dispatch-input.ts";

/**
 * Activities that only query the database: they are retried until it answers. If the worker is lost or stopped, the activity
 * runs elsewhere after `heartbeatTimeoutMs`, because its run waits for it.
 *
 * @param summary what the Temporal UI shows
 */
export const databaseActivities = ({ heartbeatTimeoutMs }: DispatchInput, summary: string) =>
  proxyActivities<Pick<Activities, "closeRun" | "listUndelivered">>({
    summary,
    startToCloseTimeout: "10 minutes",
    heartbeatTimeout: heartbeatTimeoutMs,
    retry: { initialInterval: "1 second", maximumInterval: "30 seconds" },
  });
