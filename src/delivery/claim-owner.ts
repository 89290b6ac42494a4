import type { AttemptCounts } from "../../workflows/activities.ts";
import type { Owner } from "./sender.ts";

export const noCounts = (): AttemptCounts => ({ sent: 0, delivered: 0, retrying: 0, failed: 0 });

/** Counts the claimed deliveries of a run that have not ended, and the attempts of those that have. */
export class ClaimOwner implements Owner {
  readonly runId: number;
  readonly counts = noCounts();
  #open = 0;
  #ended: PromiseWithResolvers<void> | undefined;

  constructor(runId: number) {
    this.runId = runId;
  }

  /** The number of claimed deliveries that have not ended. */
  get open(): number {
    return this.#open;
  }

  /** Adds claimed deliveries. With a negative number, they have ended or have another owner. */
  add(deliveries: number): void {
    this.#open += deliveries;
    if (this.#open > 0) return;
    this.#ended?.resolve();
    this.#ended = undefined;
  }

  recorded(...[, , state]: Parameters<Owner["recorded"]>): void {
    if (state !== undefined) this.counts.sent += 1;
    if (state !== undefined && state !== "cancelled") this.counts[state] += 1;
    this.add(-1);
  }

  returned(): void {
    this.add(-1);
  }

  /** Resolves when no claimed delivery is open. */
  ended(): Promise<void> {
    if (this.#open === 0) return Promise.resolve();
    this.#ended ??= Promise.withResolvers();
    return this.#ended.promise;
  }
}
