import type { AttemptCounts } from "../../workflows/activities.ts";
import type { ClaimedDelivery, RecordedState } from "../queue/index.ts";
import type { Outcome } from "./request/outcome.ts";

/** The counts before the first attempt. */
export const noAttempts = (): AttemptCounts => ({ sent: 0, delivered: 0, retrying: 0, failed: 0 });

/**
 * The pump or retry pass that sends claimed deliveries of a run. Counts its open deliveries, and the recorded attempts by result. For
 * each delivery, the sender calls either `recorded` or `returned` of the current owner, once.
 */
export class ClaimOwner {
  /** The run that claims the deliveries. A pump's run also retries the first attempts that fail. */
  readonly runId: number;
  readonly counts: AttemptCounts;
  /** Whether a claim has ended without an attempt: released, or ended by a filter. Pumps reset it. */
  hasReturned = false;
  /** The number of claimed deliveries that have not ended. */
  open = 0;
  #ended: PromiseWithResolvers<void> | undefined;

  constructor(runId: number, counts = noAttempts()) {
    this.runId = runId;
    this.counts = counts;
  }

  /** Adds claimed deliveries. A negative number subtracts deliveries that have ended or have another owner now. */
  add(deliveries: number): void {
    this.open += deliveries;
    if (this.open > 0) return;
    this.#ended?.resolve();
    this.#ended = undefined;
  }

  /** Counts an attempt. @param state undefined if its result is not recorded: the claim was lost, or the result could not be stored */
  recorded(_delivery: ClaimedDelivery, _outcome: Outcome, state: RecordedState | undefined): void {
    if (state !== undefined) this.counts.sent += 1;
    if (state !== undefined && state !== "cancelled") this.counts[state] += 1;
    this.add(-1);
  }

  /** Notes that a claim has ended without an attempt: the delivery was released, or ended by its filter. */
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
