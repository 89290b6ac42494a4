import { proxyActivities } from "@temporalio/workflow";
import type { Activities } from "./activities.ts";

/** Applies the retention in small steps. The result contains the numbers of deleted items. */
export async function deleteExpired(input: { heartbeatTimeoutMs: number }): Promise<{ summary: string }> {
  const activities = proxyActivities<Activities>({
    startToCloseTimeout: "50 minutes",
    heartbeatTimeout: input.heartbeatTimeoutMs,
    retry: { maximumAttempts: 3, initialInterval: "10 seconds" },
  });
  return activities.deleteExpired();
}
