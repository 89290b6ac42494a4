import {
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
import { pumpOptions, UNTIL_ANSWERED } from "./activity-options.ts";
import type { DispatchInput, RunKey } from "./dispatch-input.ts";
import { dispatchPendingDeliveries } from "./dispatch-pending-deliveries.ts";

/** Sent with each start and whenever more was published. */
export const wake = defineSignal("wake");

/** Pumps at once: another one starts when a wake-up comes while one waits for a receiver. */
const MAX_PUMPS = 4;
/** Pumps of one run; then the next run begins, while this one is settled. */
const PUMPS_PER_RUN = 100;
/** The same once deliveries to a slow receiver were left to the run: they are not tried before it is settled. */
const PUMPS_WITH_SLOW = 10;
/** How long an execution waits for the next wake-up, in milliseconds: less work for Temporal than one for each. */
const LINGER_MS = 500;
/** History length from which the work goes on in a new execution, in events: about a minute of constant wake-ups. */
const LONG_HISTORY = 8_000;

/** What all pumps of an execution did. */
export interface WokenReport {
  summary: string;
  sent: number;
  delivered: number;
  failed: number;
  /** Failing webhooks whose retries another workflow makes. */
  handedOver: number;
}

/**
 * The dispatch that publishing wakes, under one fixed id: first attempts of what is pending, again for each wake-up
 * that came meanwhile. What failed it hands to a dispatch workflow of another id, which retries it for as long as
 * that takes, so that wake-ups never wait for retries.
 */
export async function dispatchOnPublish(input: DispatchInput): Promise<WokenReport> {
  const totals = { sent: 0, delivered: 0, failed: 0, handedOver: 0 };
  const pumps = new Set<Promise<void>>();
  const settling: Promise<void>[] = [];
  let woken = true;
  let cancelled: unknown;
  let mostPumps = PUMPS_PER_RUN;
  setHandler(wake, () => {
    woken = true;
  });
  const { closeRun, listUndelivered, ...activities } = activitiesOf(input);

  async function pump(run: RunKey): Promise<void> {
    const deliverPending = pumps.size === 0 ? activities.deliverHere : activities.deliverAnywhere;
    try {
      const { more, sent, delivered, failed, handedOver } = await deliverPending(run);
      if (more) woken = true;
      if (handedOver > 0) mostPumps = PUMPS_WITH_SLOW;
      totals.sent += sent;
      totals.delivered += delivered;
      totals.failed += failed;
    } catch (error) {
      if (isCancellation(error)) cancelled = error;
      // What it had claimed is retried after the hand-over, what it had not is the minute's.
      else log.warn("a pump gave up", { error });
    }
  }

  /** Closes a run whose pumps have all been started, or hands it over. */
  async function settle(run: RunKey, itsPumps: readonly Promise<void>[]): Promise<void> {
    await Promise.all(itsPumps);
    try {
      const { groups } = await listUndelivered(run);
      totals.handedOver += groups.length;
      if (groups.length === 0) await closeRun(run);
      else await handOver(input, run);
    } catch (error) {
      cancelled = error;
      await CancellationScope.nonCancellable(() => closeRun(run));
    }
  }

  const mayStart = () => woken && pumps.size < MAX_PUMPS;
  const restless = () => cancelled !== undefined || mayStart();
  /** When the history is long, at a moment without a pump, or at the latest when it is very long. */
  const enough = () => {
    const { historyLength } = workflowInfo();
    return historyLength >= LONG_HISTORY && (pumps.size === 0 || historyLength >= 2 * LONG_HISTORY);
  };
  async function nextPump(): Promise<boolean> {
    try {
      await condition(() => restless() || pumps.size === 0);
      return (restless() || (await condition(restless, LINGER_MS))) && cancelled === undefined && !enough();
    } catch (error) {
      cancelled = error;
      return false;
    }
  }

  const { workflowId, runId } = workflowInfo();
  for (let number = 1, going = await nextPump(); going; number += 1) {
    // Each is a run of its own to the database, so that it can be handed over while the next goes on.
    const run = { workflowId, firstRunId: `${runId}/${number}` };
    const itsPumps: Promise<void>[] = [];
    mostPumps = PUMPS_PER_RUN;
    while (going && itsPumps.length < mostPumps) {
      woken = false;
      const started = pump(run).finally(() => pumps.delete(started));
      pumps.add(started);
      itsPumps.push(started);
      going = await nextPump();
    }
    settling.push(settle(run, itsPumps));
  }
  await Promise.all(settling);
  if (cancelled !== undefined) throw cancelled;
  if (woken) await continueAsNew<typeof dispatchOnPublish>(input);
  const { sent, handedOver } = totals;
  return { summary: `${sent} sent, ${handedOver} failing webhooks handed over`, ...totals };
}

/** From now on the run is another workflow's, which ends by itself. */
async function handOver(input: DispatchInput, run: RunKey): Promise<void> {
  await startChild(dispatchPendingDeliveries, {
    workflowId: `${run.workflowId}-retries-${run.firstRunId}`,
    args: [{ ...input, run, firstAttemptsDone: true }],
    parentClosePolicy: ParentClosePolicy.ABANDON,
    cancellationType: ChildWorkflowCancellationType.ABANDON,
  });
}

function activitiesOf(input: DispatchInput) {
  const { closeRun, listUndelivered } = proxyActivities<Pick<Activities, "closeRun" | "listUndelivered">>({
    startToCloseTimeout: "10 minutes",
    retry: UNTIL_ANSWERED,
  });
  const pumpBy = (by: "here" | "anyone") =>
    proxyActivities<Pick<Activities, "deliverPending">>(pumpOptions(input, by)).deliverPending;
  return {
    closeRun,
    listUndelivered,
    deliverHere: pumpBy("here"),
    deliverAnywhere: pumpBy("anyone"),
  };
}
