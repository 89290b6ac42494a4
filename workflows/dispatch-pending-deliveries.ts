import {
  CancellationScope,
  continueAsNew,
  isCancellation,
  log,
  proxyActivities,
  workflowInfo,
} from "@temporalio/workflow";
import type { Activities } from "../src/temporal/activities.ts";
import { pumpOptions, UNTIL_ANSWERED } from "./activity-options.ts";
import type { DispatchInput, DispatchReport } from "./dispatch-input.ts";
import { retryUndelivered } from "./retry-undelivered.ts";

/**
 * One minute's dispatch: first attempts of everything pending, then the retries of what failed. Its result is the
 * account of the deliveries it claimed. Deliveries are counted in the database; this decides only when and how often.
 */
export async function dispatchPendingDeliveries(input: DispatchInput): Promise<DispatchReport> {
  const { closeRun } = proxyActivities<Pick<Activities, "closeRun">>({
    startToCloseTimeout: "10 minutes",
    retry: UNTIL_ANSWERED,
  });
  const key = input.run ?? { firstRunId: workflowInfo().firstExecutionRunId };
  try {
    if (!input.firstAttemptsDone) await makeFirstAttempts(input, key);
    const toBeContinued = await retryUndelivered(input, key);
    if (toBeContinued)
      await continueAsNew<typeof dispatchPendingDeliveries>({ ...input, firstAttemptsDone: true });
  } catch (error) {
    // Cancelled by an operator: what is open is given back for the next run.
    if (isCancellation(error)) await CancellationScope.nonCancellable(() => closeRun(key));
    throw error;
  }
  return closeRun(key);
}

/** Pumps until nothing is pending; a backlog that outlasts the phase is left to the next run. */
async function makeFirstAttempts(input: DispatchInput, key: { firstRunId: string }): Promise<void> {
  const { deliverPending } = proxyActivities<Pick<Activities, "deliverPending">>(
    pumpOptions(input, "anyone"),
  );
  const until = Date.now() + input.pumpPhaseMs;
  const pumps = Array.from({ length: input.width }, async () => {
    let more = true;
    while (more && Date.now() < until) {
      try {
        ({ more } = await deliverPending(key));
      } catch (error) {
        if (isCancellation(error)) throw error;
        // Its own attempts are used up, so our part is broken, not the receivers': what it had claimed is retried
        // below, what it had not is the next run's.
        log.warn("a pump gave up", { error });
        return;
      }
    }
  });
  await Promise.all(pumps);
}
