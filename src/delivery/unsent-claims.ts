import type { Logger } from "pino";
import { isTransient } from "../lib/pg/index.ts";
import type { ClaimedDelivery } from "../queue/index.ts";
import type { ClaimOwner } from "./claim-owner.ts";
import type { WorkerLease } from "./claims/worker-lease.ts";
import type { EventContents } from "./event-contents.ts";

/** A claimed delivery, and the pump or retry pass that sends it. */
export interface OwnedClaim {
  readonly delivery: ClaimedDelivery;
  owner: ClaimOwner;
}

/** Ends claims of a worker in the database: releases the deliveries or ends them. */
type EndClaims = (workerId: number, deliveries: readonly ClaimedDelivery[]) => Promise<void>;

/** Dependencies of unsent claims. */
export interface UnsentClaimsParts {
  log: Logger;
  /** Makes deliveries claimable again. */
  release: EndClaims;
  /** Ends deliveries that their webhooks' filters do not match. */
  endFiltered: EndClaims;
  lease: Pick<WorkerLease, "retire" | "settle">;
  contents: Pick<EventContents, "release">;
}

/** Ends claims without an attempt, and calls `returned` of their owners. */
export class UnsentClaims {
  readonly #parts: UnsentClaimsParts;
  /** Deliveries that filters did not match, to be ended. */
  readonly #unmatched: OwnedClaim[] = [];
  #endsUnmatched = false;
  #ending: Promise<void> = Promise.resolve();

  constructor(parts: UnsentClaimsParts) {
    this.#parts = parts;
  }

  /** The number of deliveries that filters did not match and that no statement ends yet. */
  get unmatched(): number {
    return this.#unmatched.length;
  }

  /** Resolves when all releases, and endings by filters, that are in progress have ended. Starts none. */
  ended(): Promise<void> {
    return this.#ending;
  }

  /** Releases deliveries and their payloads. */
  release(claims: readonly OwnedClaim[]): void {
    if (claims.length === 0) return;
    for (const { delivery } of claims) this.#parts.contents.release(delivery);
    void this.releaseUnloaded(claims);
  }

  /** Releases deliveries whose payloads are not loaded, or released already. Never rejects. */
  releaseUnloaded(claims: readonly OwnedClaim[]): Promise<void> {
    return this.#end(claims, this.#parts.release);
  }

  /** Ends a delivery that a filter did not match: one statement at a time. Deliveries that arrive meanwhile share the next one. */
  async endUnmatched(claim: OwnedClaim): Promise<void> {
    this.#unmatched.push(claim);
    if (this.#endsUnmatched) return;
    this.#endsUnmatched = true;
    const { contents, endFiltered } = this.#parts;
    while (this.#unmatched.length > 0) {
      const some = this.#unmatched.splice(0);
      for (const { delivery } of some) contents.release(delivery);
      await this.#end(some, endFiltered);
    }
    this.#endsUnmatched = false;
  }

  #end(claims: readonly OwnedClaim[], end: EndClaims): Promise<void> {
    const before = this.#ending;
    const work = this.#endAll(claims, end);
    this.#ending = work.then(() => before);
    return work;
  }

  async #endAll(claims: readonly OwnedClaim[], end: EndClaims): Promise<void> {
    const { lease, log } = this.#parts;
    for (const [workerId, some] of Map.groupBy(claims, ({ delivery }) => delivery.token.workerId)) {
      const deliveries = some.map(({ delivery }) => delivery);
      try {
        await end(workerId, deliveries);
      } catch (err) {
        // Not retried: if only the response was lost, this process may have claimed the deliveries again, and a retry would release them.
        // If the statement failed, retiring the id frees its claims once the known ones are settled.
        if (!isTransient(err)) log.error({ err }, "ending claims without an attempt failed");
        lease.retire(workerId);
      }
      lease.settle(workerId, some.length);
      for (const { owner } of some) owner.returned();
    }
  }
}
