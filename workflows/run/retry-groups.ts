import { defineSearchAttributeKey, SearchAttributeType } from "@temporalio/common";
import {
  ActivityCancellationType,
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  condition,
  deprecatePatch,
  isCancellation,
  proxyActivities,
  sleep,
  workflowInfo,
} from "@temporalio/workflow";
import { type Activities, databaseActivities } from "../activities.ts";
import {
  DELIVERIES_FAILED,
  type DispatchInput,
  type RetryGroup,
  type RunKey,
  type UndeliveredList,
} from "../dispatch-input.ts";
import { type RunDescription, showInSearch } from "./run-description.ts";

const FAILING_WEBHOOK_IDS = defineSearchAttributeKey("FailingWebhookIds", SearchAttributeType.KEYWORD_LIST);
const FAILING_HOSTS = defineSearchAttributeKey("FailingHosts", SearchAttributeType.KEYWORD_LIST);

/** The minimum of the first interval between requests for late failures, in milliseconds. Later intervals double. */
const MIN_LATE_ASK_MS = 1_000;

/** The number of activities after which a group is listed again, so that every loop is bounded. */
const ACTIVITIES_PER_ASK = 5;
/** The minimum by which a retry must be due earlier for its waiting group to be woken, in milliseconds. Each time costs a timer. */
const MIN_EARLIER_MS = 1_000;
/** The delay after a lost activity, in milliseconds. */
const LOST_RETRY_DELAY_MS = 5_000;

/** The retries of a run, group by group: one failing webhook each, or several where there are many. */
export type RetryGroups = ReturnType<typeof createRetryGroups>;

/** Creates the retries of a run, without groups. */
export function createRetryGroups(input: DispatchInput, key: RunKey, description: RunDescription) {
  const summary = "which deliveries are to be retried, and which workers are live";
  const { listUndelivered } = databaseActivities(input, summary);
  /** The groups that are being retried: the times until which they wait, in milliseconds since 1970; 0 if they do not wait. */
  const running = new Map<number, number>();
  /** Whether groups are being retried. */
  const areRunning = () => running.size > 0;
  let shown = "";
  let isLateExpected = false;
  /** Whether a group has used its activities since the last request. */
  let isUsedUp = false;
  let failure: unknown;

  /** Lists failed deliveries and retries the groups that are not being retried already. */
  async function ask(): Promise<UndeliveredList> {
    if (failure !== undefined) throw failure;
    isUsedUp = false;
    const undelivered = await listUndelivered(key);
    const { webhookIds, hosts } = undelivered;
    const now = JSON.stringify([webhookIds, hosts]);
    if (webhookIds.length > 0 && now !== shown) {
      shown = now;
      await showInSearch("failing", [
        { key: FAILING_WEBHOOK_IDS, value: webhookIds },
        { key: FAILING_HOSTS, value: hosts },
      ]);
    }
    description.addListed(undelivered);
    for (const group of undelivered.groups) {
      wakeEarlier(group);
      if (running.has(group.group)) continue;
      running.set(group.group, 0);
      void retry(group)
        .catch((error) => {
          failure = error;
        })
        .finally(() => running.delete(group.group));
    }
    return undelivered;
  }

  /**
   * Temporal's three attempts schedule the retries; the database counts them. If a crash or deployment used up an
   * attempt, deliveries remain and the activity runs again.
   */
  async function retry({ group, summary, delayMs: firstDelayMs }: RetryGroup): Promise<void> {
    const { heartbeatTimeoutMs, retryTaskQueue, continueAsNewAfter } = input;
    const { retryDeliveries } = proxyActivities<Activities>({
      taskQueue: retryTaskQueue,
      summary,
      startToCloseTimeout: "1 hour",
      heartbeatTimeout: heartbeatTimeoutMs,
      cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
      // Reported failures contain the delay of the next attempt. The interval applies if a worker was lost.
      retry: { maximumAttempts: 3, initialInterval: "5 seconds", backoffCoefficient: 1 },
    });
    let delayMs = firstDelayMs;
    for (let activities = 0; activities < ACTIVITIES_PER_ASK; activities += 1) {
      if (delayMs > 0) await wait(group, delayMs, `before retrying ${summary}`);
      try {
        await retryDeliveries({ ...key, group, of: summary });
        return;
      } catch (error) {
        if (isCancellation(error) || !(error instanceof ActivityFailure)) throw error;
        const cause = error.cause instanceof ApplicationFailure ? error.cause : undefined;
        if (cause?.type === DELIVERIES_FAILED) return;
        // Only a pass that deliveries remain after names the delay. Others ended by a crash or another internal error.
        const [remaining] = (cause?.details ?? []) as { delayMs?: number }[];
        delayMs = remaining?.delayMs ?? LOST_RETRY_DELAY_MS;
      }
    }
    // In a long history, the run first continues as new, for which all groups must end.
    if (workflowInfo().historyLength >= continueAsNewAfter) return;
    deprecatePatch("ask-after-activities");
    isUsedUp = true;
  }

  /** Waits before a group is retried; shorter if it is woken. */
  async function wait(group: number, delayMs: number, summary: string): Promise<void> {
    let due = Date.now() + delayMs;
    running.set(group, due);
    while (due > Date.now()) {
      const known = due;
      const timer = new CancellationScope();
      const isOver = timer.run(() => sleep(known - Date.now(), { summary }));
      await Promise.race([isOver, condition(() => running.get(group) !== known)]);
      timer.cancel();
      due = running.get(group) ?? 0;
    }
    running.set(group, 0);
  }

  /** Lets a group that waits go on earlier, because a delivery that failed later is due earlier. */
  function wakeEarlier({ group, delayMs }: RetryGroup): void {
    const due = Date.now() + delayMs;
    if ((running.get(group) ?? 0) - due < MIN_EARLIER_MS) return;
    deprecatePatch("wake-earlier");
    running.set(group, due);
  }

  return {
    areRunning,
    ask,

    /** Asks again while groups are being retried: what failed since the last request would otherwise wait for their end. */
    askAfterPumps(): Promise<UndeliveredList> {
      deprecatePatch("ask-after-pumps");
      return ask();
    },

    /** Deliveries may fail later than pumps have ended: a pump is lost, and its worker may be live. */
    expectLate(): void {
      isLateExpected = true;
    },

    /**
     * Resolves when no group is being retried. Until then, lists groups again that have used their activities. If late failures
     * are expected, asks for them at growing intervals.
     */
    async ended(): Promise<void> {
      const isOver = () => !areRunning() || (isUsedUp && failure === undefined);
      let lateMs = Math.max(MIN_LATE_ASK_MS, input.retryInitialDelayMs);
      if (isLateExpected && areRunning()) deprecatePatch("ask-after-pumps");
      while (areRunning()) {
        let isEarly = true;
        if (isLateExpected) isEarly = await condition(isOver, lateMs);
        // A cancelled run waits until the last responses are recorded.
        else await CancellationScope.nonCancellable(() => condition(isOver));
        if (!isEarly || areRunning()) await ask();
        if (!isEarly) lateMs *= 2;
      }
      if (failure !== undefined) throw failure;
    },
  };
}
