import type { Logger } from "pino";
import { isTransient } from "../../db/faults.ts";
import type { ClaimedDelivery } from "../../db/queue/claims.ts";
import type { WorkerLease } from "./worker-lease.ts";

/** A claimed delivery and who is told when its claim has ended. */
export interface OwnedClaim {
  readonly delivery: ClaimedDelivery;
  readonly owner: { returned(): void };
}

/** Ends claims of a worker in the database. */
export type EndClaims = (workerId: number, deliveries: readonly ClaimedDelivery[]) => Promise<void>;

/** Dependencies of `UnsentClaims`. */
export interface UnsentClaimsParts {
  log: Logger;
  lease: Pick<WorkerLease, "settle" | "retire">;
  /** Makes deliveries claimable again. */
  release: EndClaims;
  /** Ends deliveries that their webhooks' filters do not match. */
  endFiltered: EndClaims;
}

/** Ends claims without an attempt, and tells their owners. The payloads are already released. */
export class UnsentClaims {
  readonly #parts: UnsentClaimsParts;
  readonly #ending = new Set<Promise<void>>();

  constructor(parts: UnsentClaimsParts) {
    this.#parts = parts;
  }

  /** Makes deliveries claimable again. Resolves when that is stored or has failed; never rejects. */
  release(claims: readonly OwnedClaim[]): Promise<void> {
    return this.#end(claims, this.#parts.release);
  }

  /** Ends deliveries that their webhooks' filters do not match. Resolves as `release` does. */
  endFiltered(claims: readonly OwnedClaim[]): Promise<void> {
    return this.#end(claims, this.#parts.endFiltered);
  }

  /** Resolves when the claims have ended that are being ended now. Never rejects. */
  async ended(): Promise<void> {
    await Promise.all(this.#ending);
  }

  /** Resolves when no claim is being ended. Never rejects. */
  async close(): Promise<void> {
    while (this.#ending.size > 0) await this.ended();
  }

  async #end(claims: readonly OwnedClaim[], end: EndClaims): Promise<void> {
    if (claims.length === 0) return;
    const work = this.#endOfWorkers(
      claims.map(({ delivery }) => delivery),
      end,
    );
    this.#ending.add(work);
    await work;
    this.#ending.delete(work);
    for (const { owner } of claims) owner.returned();
  }

  async #endOfWorkers(deliveries: readonly ClaimedDelivery[], end: EndClaims): Promise<void> {
    const { lease, log } = this.#parts;
    for (const [workerId, some] of Map.groupBy(deliveries, ({ token }) => token.workerId)) {
      try {
        await end(workerId, some);
      } catch (err) {
        // Not repeated: if the response was lost, the deliveries are free, and this process may have claimed them again.
        // Retiring the id frees its claims once the known ones are settled.
        if (!isTransient(err)) log.error({ err }, "ending claims without an attempt failed");
        lease.retire(workerId);
      }
      lease.settle(workerId, some.length);
    }
  }
}
