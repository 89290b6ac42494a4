import type { AttemptCounts } from "../../workflows/activities.ts";
import type { ClaimedDelivery, RecordedState } from "../queue/index.ts";
import type { Outcome } from "./request/outcome.ts";

/** The counts before the first attempt. */
export const noAttempts = (): AttemptCounts => ({ sent: 0, delivered: 0, retrying: 0, failed: 0 });

/**
 * The owner of claimed deliveries of a run, which makes their attempts: counts those that have not ended, and the attempts of those
 * that have. The sender calls exactly one of `recorded` and `returned` when a delivery ends.
 */
export class ClaimOwner {
  /** A first attempt that fails is retried by this run. */
  readonly runId: number;
  readonly counts: AttemptCounts;
  /** Whether a claim has ended without an attempt. */
  hasReturned = false;
  /** The number of claimed deliveries that have not ended. */
  open = 0;
  #ended: PromiseWithResolvers<void> | undefined;

  constructor(runId: number, counts = noAttempts()) {
    this.runId = runId;
    this.counts = counts;
  }

  /** Adds claimed deliveries. With a negative number, they have ended or have another owner. */
  add(deliveries: number): void {
    this.open += deliveries;
    if (this.open > 0) return;
    this.#ended?.resolve();
    this.#ended = undefined;
  }

  /** The attempt was made. @param state undefined if its result could not be recorded because the claim was lost */
  recorded(_delivery: ClaimedDelivery, _outcome: Outcome, state: RecordedState | undefined): void {
    if (state !== undefined) this.counts.sent += 1;
    if (state !== undefined && state !== "cancelled") this.counts[state] += 1;
    this.add(-1);
  }

  /** The delivery was released without an attempt. */
  returned(): void {
    this.hasReturned = true;
    this.add(-1);
  }

  /** Resolves when no claimed delivery is open. */
  ended(): Promise<void> {
    if (this.open === 0) return Promise.resolve();
    this.#ended ??= Promise.withResolvers();
    return this.#ended.promise;
  }
}
