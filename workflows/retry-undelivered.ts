import { defineSearchAttributeKey, SearchAttributeType } from "@temporalio/common";
import {
  ActivityCancellationType,
  ActivityFailure,
  ApplicationFailure,
  isCancellation,
  proxyActivities,
  sleep,
  upsertSearchAttributes,
  workflowInfo,
} from "@temporalio/workflow";
import type { Activities } from "../src/temporal/activities.ts";
import { UNTIL_ANSWERED } from "./activity-options.ts";
import {
  DELIVERIES_FAILED,
  type DispatchInput,
  type RetryGroup,
  UNDELIVERED,
  type UndeliveredList,
} from "./dispatch-input.ts";

const FAILING_WEBHOOK_IDS = defineSearchAttributeKey("FailingWebhookIds", SearchAttributeType.KEYWORD_LIST);
const FAILING_HOSTS = defineSearchAttributeKey("FailingHosts", SearchAttributeType.KEYWORD_LIST);

/** After this many activities a group is looked at afresh, so that no loop here is without end. */
const ACTIVITIES_PER_LISTING = 5;

/**
 * Retries group by group until every delivery of the run has come to an end.
 *
 * @returns true when the history has grown so long that the rest belongs in a new execution
 */
export async function retryUndelivered(input: DispatchInput, key: { firstRunId: string }): Promise<boolean> {
  const { listUndelivered } = proxyActivities<Pick<Activities, "listUndelivered">>({
    startToCloseTimeout: "5 minutes",
    retry: UNTIL_ANSWERED,
  });
  for (;;) {
    const undelivered = await listUndelivered(key);
    if (undelivered.groups.length === 0) return false;
    if (input.searchAttributes) showInSearch(undelivered);
    await Promise.all(undelivered.groups.map((group) => retryGroup(input, key, group)));
    const { historyLength, continueAsNewSuggested } = workflowInfo();
    if (continueAsNewSuggested || historyLength >= input.continueAsNewAfter) return true;
  }
}

/**
 * One failing webhook (or several, where there are many). Temporal's three attempts pace the retries; the database
 * counts them. When a crash or a deploy used an attempt up, entries remain and the activity runs again.
 */
async function retryGroup(
  input: DispatchInput,
  key: { firstRunId: string },
  group: RetryGroup,
): Promise<void> {
  const secondDelay = input.retryInitialDelayMs * input.retryBackoffCoefficient;
  const { retryDeliveries } = proxyActivities<Pick<Activities, "retryDeliveries">>({
    taskQueue: input.retryTaskQueue,
    summary: group.summary,
    startToCloseTimeout: "2 hours",
    heartbeatTimeout: input.heartbeatTimeoutMs,
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    retry: {
      maximumAttempts: 3,
      initialInterval: secondDelay,
      backoffCoefficient: input.retryBackoffCoefficient,
      maximumInterval: secondDelay * input.retryBackoffCoefficient,
    },
  });
  let delayMs = group.delayMs;
  for (let activities = 0; activities < ACTIVITIES_PER_LISTING; activities += 1) {
    if (delayMs > 0) await sleep(delayMs, { summary: `before retrying ${group.summary}` });
    try {
      await retryDeliveries({ ...key, group: group.group });
      return;
    } catch (error) {
      if (isCancellation(error) || !(error instanceof ActivityFailure)) throw error;
      const cause = error.cause;
      if (cause instanceof ApplicationFailure && cause.type === DELIVERIES_FAILED) return;
      delayMs = remainingDelay(cause) ?? input.retryInitialDelayMs;
    }
  }
}

/** The wait that a pass asked for; undefined when it ended by a crash or another fault of ours. */
function remainingDelay(cause: Error | undefined): number | undefined {
  if (!(cause instanceof ApplicationFailure) || cause.type !== UNDELIVERED) return undefined;
  const [details] = (cause.details ?? []) as { delayMs?: number }[];
  return details?.delayMs;
}

function showInSearch({ webhookIds, hosts }: UndeliveredList): void {
  upsertSearchAttributes([
    { key: FAILING_WEBHOOK_IDS, value: webhookIds },
    { key: FAILING_HOSTS, value: hosts },
  ]);
}
