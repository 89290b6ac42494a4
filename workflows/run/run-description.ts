import { defineSearchAttributeKey, SearchAttributeType } from "@temporalio/common";
import { deprecatePatch, setCurrentDetails, upsertMemo } from "@temporalio/workflow";
import type { AttemptCounts } from "../activities.ts";
import { countsInWords } from "../counts-in-words.ts";
import type { RetryGroup, RunClosing } from "../dispatch-input.ts";
import { showInSearch } from "./run-search.ts";

const DELIVERY_ATTEMPTS = defineSearchAttributeKey("DeliveryAttempts", SearchAttributeType.INT);

/** The maximum number of retry groups that a description names, which bounds the memo in the history. */
const MAX_NAMED = { memo: 10, details: 50 };

/**
 * The description of a run for operators: current details in Markdown, which are not part of the history; and the
 * memo and a search attribute of busy runs, after the first attempts if there are retries, and at the end.
 */
export class RunDescription {
  readonly #first: AttemptCounts = { sent: 0, delivered: 0, retrying: 0, failed: 0 };
  /** The summaries of all retry groups of the run, by number. */
  readonly #groups = new Map<number, string>();

  #hasRecordedFirst = false;
  #heldBack: readonly string[] = [];

  /** Adds the first attempts of a pump. */
  addPump({ sent, delivered, retrying, failed }: AttemptCounts): void {
    this.#first.sent += sent;
    this.#first.delivered += delivered;
    this.#first.retrying += retrying;
    this.#first.failed += failed;
    this.#showDetails();
  }

  /** Adds the groups that are to be retried. */
  addGroups(groups: readonly RetryGroup[]): void {
    for (const { group, summary } of groups) this.#groups.set(group, summary);
    if (groups.length > 0) this.#showDetails();
  }

  /** Replaces the webhooks that their circuit breakers hold back, a line each. */
  setHeldBack(lines: readonly string[]): void {
    const shown = this.#heldBack;
    this.#heldBack = lines;
    if (lines.length > 0 || shown.length > 0) this.#showDetails();
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
    setCurrentDetails(this.#markdown(`**Ended.** ${report.summary}`));
    if (report.sent > 0) await this.#record(report.summary, report.sent);
  }

  #showDetails(): void {
    const first =
      this.#first.sent > 0 ? `**First attempts.** ${countsInWords(this.#first)}` : "**Retries only.**";
    setCurrentDetails(this.#markdown(first));
  }

  #markdown(start: string): string {
    const parts = [start];
    if (this.#groups.size > 0) {
      const named = this.#named(MAX_NAMED.details);
      parts.push(
        "",
        "**Failing webhooks**, with their retries when they were last listed:",
        "",
        ...listed(named),
      );
    }
    if (this.#heldBack.length > 0)
      parts.push("", "**Circuit breakers**, as last listed:", "", ...listed(this.#heldBack));
    return parts.join("\n");
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

const listed = (lines: readonly string[]) => lines.map((line) => `- ${line}`);
