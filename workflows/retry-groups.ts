import { defineSearchAttributeKey, SearchAttributeType } from "@temporalio/common";
import {
  ActivityFailure,
  ApplicationFailure,
  isCancellation,
  proxyActivities,
  sleep,
  upsertSearchAttributes,
} from "@temporalio/workflow";
import type { Activities } from "./activities.ts";
import { retryOptions, untilAnswered } from "./activity-options.ts";
import {
  DELIVERIES_FAILED,
  type DispatchInput,
  type RetryGroup,
  type RunKey,
  UNDELIVERED,
  type UndeliveredList,
} from "./dispatch-input.ts";

const FAILING_WEBHOOK_IDS = defineSearchAttributeKey("FailingWebhookIds", SearchAttributeType.KEYWORD_LIST);
const FAILING_HOSTS = defineSearchAttributeKey("FailingHosts", SearchAttributeType.KEYWORD_LIST);

/** After this many activities a group is looked at afresh, so that no loop here is without end. */
const ACTIVITIES_PER_ASK = 5;
/** Wait after an activity that was lost, in milliseconds. */
const AFTER_LOSS_MS = 5_000;

/** The retries of a run, group by group: one failing webhook each, or several where there are many. */
export class RetryGroups {
  readonly #input: DispatchInput;
  readonly #key: RunKey;
  readonly #activities: Pick<Activities, "listUndelivered">;
  readonly #running = new Map<number, Promise<void>>();
  #shown = "";
  #error: unknown;

  constructor(input: DispatchInput, key: RunKey) {
    this.#input = input;
    this.#key = key;
    this.#activities = proxyActivities<Pick<Activities, "listUndelivered">>(untilAnswered(input));
  }

  /** Asks what failed, and retries the groups that are not being retried already. */
  async ask(): Promise<UndeliveredList> {
    if (this.#error !== undefined) throw this.#error;
    const undelivered = await this.#activities.listUndelivered(this.#key);
    this.#showInSearch(undelivered);
    for (const group of undelivered.groups) {
      if (this.#running.has(group.group)) continue;
      const retries = this.#retry(group)
        .catch((error) => {
          this.#error = error;
        })
        .finally(() => this.#running.delete(group.group));
      this.#running.set(group.group, retries);
    }
    return undelivered;
  }

  /** Resolves when nothing is being retried. */
  async ended(): Promise<void> {
    await Promise.all(this.#running.values());
    if (this.#error !== undefined) throw this.#error;
  }

  /**
   * Temporal's three attempts pace the retries; the database counts them. When a crash or a deploy used an attempt up,
   * entries remain and the activity runs again.
   */
  async #retry({ group, summary, delayMs: firstDelayMs }: RetryGroup): Promise<void> {
    const { retryDeliveries } = proxyActivities<Pick<Activities, "retryDeliveries">>(
      retryOptions(this.#input, summary),
    );
    let delayMs = firstDelayMs;
    for (let activities = 0; activities < ACTIVITIES_PER_ASK; activities += 1) {
      if (delayMs > 0) await sleep(delayMs, { summary: `before retrying ${summary}` });
      try {
        await retryDeliveries({ ...this.#key, group });
        return;
      } catch (error) {
        if (isCancellation(error) || !(error instanceof ActivityFailure)) throw error;
        const { cause } = error;
        if (cause instanceof ApplicationFailure && cause.type === DELIVERIES_FAILED) return;
        delayMs = remainingDelay(cause) ?? AFTER_LOSS_MS;
      }
    }
  }

  #showInSearch({ webhookIds, hosts }: UndeliveredList): void {
    const shown = JSON.stringify([webhookIds, hosts]);
    if (!this.#input.searchAttributes || webhookIds.length === 0 || shown === this.#shown) return;
    this.#shown = shown;
    upsertSearchAttributes([
      { key: FAILING_WEBHOOK_IDS, value: webhookIds },
      { key: FAILING_HOSTS, value: hosts },
    ]);
  }
}

/** The wait that a pass asked for; undefined when it ended by a crash or another fault of ours. */
function remainingDelay(cause: Error | undefined): number | undefined {
  if (!(cause instanceof ApplicationFailure) || cause.type !== UNDELIVERED) return undefined;
  const [details] = (cause.details ?? []) as { delayMs?: number }[];
  return details?.delayMs;
}
