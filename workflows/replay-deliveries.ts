import {
  ActivityCancellationType,
  CancellationScope,
  continueAsNew,
  isCancellation,
  proxyActivities,
  setCurrentDetails,
  upsertMemo,
  workflowInfo,
} from "@temporalio/workflow";
import type { Activities } from "./activities.ts";

/**
 * Runs a replay until it is completed, paused or cancelled. The database holds its progress: a replay that is resumed runs
 * in a new execution. Cancelling the workflow pauses the replay.
 *
 * @returns its progress, for the Temporal UI
 */
export async function replayDeliveries(input: {
  replayId: string;
  heartbeatTimeoutMs: number;
}): Promise<{ summary: string }> {
  const { replayId, heartbeatTimeoutMs } = input;
  const { replay, pauseReplay } = proxyActivities<Activities>({
    startToCloseTimeout: "1 hour",
    heartbeatTimeout: heartbeatTimeoutMs,
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { initialInterval: "1 second", maximumInterval: "30 seconds" },
  });
  try {
    for (;;) {
      const { more, summary } = await replay({ replayId });
      setCurrentDetails(summary);
      upsertMemo({ outcome: summary });
      if (!more) return { summary };
      if (workflowInfo().continueAsNewSuggested) await continueAsNew<typeof replayDeliveries>(input);
    }
  } catch (error) {
    if (isCancellation(error)) await CancellationScope.nonCancellable(() => pauseReplay({ replayId }));
    throw error;
  }
}
