import {
  ActivityCancellationType,
  CancellationScope,
  ChildWorkflowCancellationType,
  condition,
  continueAsNew,
  defineSignal,
  isCancellation,
  log,
  ParentClosePolicy,
  proxyActivities,
  setHandler,
  startChild,
  workflowInfo,
} from "@temporalio/workflow";
import type { Activities } from "../src/temporal/activities.ts";
import type { DispatchInput, DispatchReport } from "./dispatch-input.ts";
import { dispatchPendingDeliveries } from "./dispatch-pending-deliveries.ts";

/** Sent with each start and whenever more was published. */
export const wake = defineSignal("wake");

/** Pumps at once: another one starts when a wake-up comes while one waits for a receiver. */
const MAX_PUMPS = 4;
/** Pumps of one run, so that its history stays short. */
const MAX_ROUNDS = 100;
/** How long a run waits for the next wake-up, in milliseconds: less work for Temporal than a run for each. */
const LINGER_MS = 500;

/**
 * The dispatch that publishing wakes, under one fixed id: first attempts of what is pending, again for each wake-up
 * that came meanwhile. What failed it hands to a dispatch run of another id, which retries it for as long as that
 * takes, so that this id is free for the next wake-up.
 */
export async function dispatchOnPublish(input: DispatchInput): Promise<DispatchReport | { summary: string }> {
  const { closeRun, listUndelivered } = proxyActivities<Pick<Activities, "closeRun" | "listUndelivered">>({
    startToCloseTimeout: "10 minutes",
    retry: { initialInterval: "1 second", maximumInterval: "30 seconds" },
  });
  const { workflowId, runId } = workflowInfo();
  // Each execution is a run of its own, whatever it goes on from: what it hands over is closed by another.
  const run = { workflowId, firstRunId: runId };
  const woken = { now: true };
  setHandler(wake, () => {
    woken.now = true;
  });
  try {
    await pumpWhenWoken(input, run, woken);
    const { groups } = await listUndelivered(run);
    const report = groups.length === 0 ? await closeRun(run) : undefined;
    if (!report) {
      await startChild(dispatchPendingDeliveries, {
        workflowId: `${workflowId}-retries-${runId}`,
        args: [{ ...input, run, firstAttemptsDone: true }],
        parentClosePolicy: ParentClosePolicy.ABANDON,
        cancellationType: ChildWorkflowCancellationType.ABANDON,
      });
    }
    if (woken.now) await continueAsNew<typeof dispatchOnPublish>(input);
    return report ?? { summary: `handed over ${groups.length} failing webhooks` };
  } catch (error) {
    if (isCancellation(error)) await CancellationScope.nonCancellable(() => closeRun(run));
    throw error;
  }
}

/** Returns with no pump at work, once no wake-up has come for a while or the history is long. */
async function pumpWhenWoken(
  input: DispatchInput,
  run: { workflowId: string; firstRunId: string },
  woken: { now: boolean },
): Promise<void> {
  const { deliverPending } = proxyActivities<Pick<Activities, "deliverPending">>({
    startToCloseTimeout: "10 minutes",
    heartbeatTimeout: input.heartbeatTimeoutMs,
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: { maximumAttempts: 3, initialInterval: "1 second" },
  });
  const pumps = new Set<Promise<void>>();
  let cancelled: unknown;
  const pump = async () => {
    try {
      const { more } = await deliverPending(run);
      if (more) woken.now = true;
    } catch (error) {
      if (isCancellation(error)) cancelled = error;
      // What it had claimed is retried by the run it is handed to, what it had not is the minute's.
      else log.warn("a pump gave up", { error });
    }
  };
  const mayStart = () => woken.now && pumps.size < MAX_PUMPS;
  const restless = () => cancelled !== undefined || mayStart();
  try {
    for (let rounds = 0; rounds < MAX_ROUNDS; rounds += 1) {
      await condition(() => restless() || pumps.size === 0);
      if (!restless() && !(await condition(restless, LINGER_MS))) break;
      if (cancelled !== undefined) break;
      woken.now = false;
      const started = pump().finally(() => pumps.delete(started));
      pumps.add(started);
    }
  } finally {
    // After a cancel too: what is in flight must be recorded before the run is closed.
    await Promise.all(pumps);
  }
  if (cancelled !== undefined) throw cancelled;
}
