import { proxyActivities } from "@temporalio/workflow";
import type { Activities } from "./activities.ts";

/** Deletes what is older than the retention, a little at a time; the result says how much it was. */
export async function deleteExpired(input: { heartbeatTimeoutMs: number }): Promise<{ summary: string }> {
  const activities = proxyActivities<Pick<Activities, "deleteExpired">>({
    startToCloseTimeout: "50 minutes",
    heartbeatTimeout: input.heartbeatTimeoutMs,
    retry: { maximumAttempts: 3, initialInterval: "10 seconds" },
  });
  return activities.deleteExpired();
}
