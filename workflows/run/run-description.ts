import { defineSearchAttributeKey, type SearchAttributePair, SearchAttributeType } from "@temporalio/common";
import {
  deprecatePatch,
  isCancellation,
  proxyLocalActivities,
  setCurrentDetails,
  upsertMemo,
  upsertSearchAttributes,
} from "@temporalio/workflow";
import type { Activities } from "../activities.ts";
import { countsInWords } from "../counts-in-words.ts";
import type { RunClosing, RunTotals, Searchable, UndeliveredList } from "../dispatch-input.ts";

const DELIVERY_ATTEMPTS = defineSearchAttributeKey("DeliveryAttempts", SearchAttributeType.INT);

/** The maximum number of retry groups that a description names, which bounds the memo in the history. */
const MAX_NAMED = { memo: 10, details: 50 };

/**
 * The description of a run for operators: current details in Markdown, which are not part of the history; and the
 * memo and a search attribute of busy runs, after the first attempts if there are retries, and at the end.
 */
export class RunDescription {
  readonly #first = { sent: 0, delivered: 0, failed: 0 };
  /** The summaries of all retry groups of the run, by number. */
  readonly #groups = new Map<number, string>();

  #hasRecordedFirst = false;
  #heldBack: readonly string[] = [];

  /** Adds the first attempts of a pump. */
  addPump({ sent, delivered, failed }: RunTotals): void {
    this.#first.sent += sent;
    this.#first.delivered += delivered;
    this.#first.failed += failed;
    this.#showRunning();
  }

  /** Adds the groups that are to be retried, and replaces the webhooks that their circuit breakers hold back. */
  addListed({ groups, heldBack = [] }: UndeliveredList): void {
    for (const { group, summary } of groups) this.#groups.set(group, summary);
    this.#heldBack = heldBack;
    this.#showRunning();
  }

  /**
   * Called when first attempts are completed and retries may remain; records them once, if there are retries.
   *
   * @returns undefined if there is nothing to wait for: each wait may change the order of a run's steps
   */
  firstAttemptsEnded(): Promise<void> | undefined {
    if (this.#hasRecordedFirst || this.#first.sent === 0 || this.#groups.size === 0) return undefined;
    this.#hasRecordedFirst = true;
    return this.#record(countsInWords(this.#first), this.#first.sent);
  }

  /** Called when the run is closed. */
  async closed({ report }: RunClosing): Promise<void> {
    this.#show(`**Ended.** ${report.summary}`);
    if (report.sent > 0) await this.#record(report.summary, report.sent);
  }

  #showRunning(): void {
    const { sent } = this.#first;
    this.#show(sent > 0 ? `**First attempts.** ${countsInWords(this.#first)}` : "**Running.**");
  }

  #show(state: string): void {
    const failing = this.#named(MAX_NAMED.details);
    const parts = [
      state,
      ...section("**Failing webhooks**, with their retries when they were last listed:", failing),
      ...section("**Circuit breakers**, as last listed:", this.#heldBack),
    ];
    setCurrentDetails(parts.join("\n\n"));
  }

  #named(most: number): string[] {
    const all = [...this.#groups.values()];
    return all.length <= most ? all : [...all.slice(0, most), `and ${all.length - most} more`];
  }

  #record(outcome: string, attempts: number): Promise<void> {
    deprecatePatch("describe-run");
    // Temporal stores no empty list.
    const failingWebhooks = this.#named(MAX_NAMED.memo);
    upsertMemo({ outcome, ...(failingWebhooks.length > 0 ? { failingWebhooks } : {}) });
    return showInSearch("attempts", [{ key: DELIVERY_ATTEMPTS, value: attempts }]);
  }
}

/** A list under a title; nothing without lines. */
const section = (title: string, lines: readonly string[]) =>
  lines.length > 0 ? [title, lines.map((line) => `- ${line}`).join("\n")] : [];

/**
 * Sets search attributes if they are registered. Temporal refuses and repeats a workflow task that sets others. The local
 * activity is then asked again, because its result is stored with the task; so a run continues when operators remove
 * attributes, and sets them once they exist.
 */
export async function showInSearch(
  attributes: keyof Searchable,
  values: SearchAttributePair[],
): Promise<void> {
  deprecatePatch("ask-searchable");
  const { readSearchable } = proxyLocalActivities<Activities>({
    startToCloseTimeout: "5 seconds",
    retry: { maximumAttempts: 1 },
  });
  try {
    if ((await readSearchable())[attributes]) upsertSearchAttributes(values);
  } catch (error) {
    if (isCancellation(error)) throw error;
  }
}
