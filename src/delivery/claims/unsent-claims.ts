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

/** Ends claims without an attempt, and tells their owners. The payloads are already released. */
export type UnsentClaims = ReturnType<typeof createUnsentClaims>;

/**
 * @param parts.release makes deliveries claimable again
 * @param parts.endFiltered ends deliveries that their webhooks' filters do not match
 */
export function createUnsentClaims(parts: {
  log: Logger;
  lease: Pick<WorkerLease, "settle" | "retire">;
  release: EndClaims;
  endFiltered: EndClaims;
}) {
  const { log, lease } = parts;
  let ending: Promise<void> = Promise.resolve();

  async function endAll(claims: readonly OwnedClaim[], end: EndClaims): Promise<void> {
    for (const [workerId, some] of Map.groupBy(claims, ({ delivery }) => delivery.token.workerId)) {
      const deliveries = some.map(({ delivery }) => delivery);
      try {
        await end(workerId, deliveries);
      } catch (err) {
        // Not repeated: if the response was lost, the deliveries are free, and this process may have claimed them again.
        // Retiring the id frees its claims once the known ones are settled.
        if (!isTransient(err)) log.error({ err }, "ending claims without an attempt failed");
        lease.retire(workerId);
      }
      lease.settle(workerId, some.length);
      for (const { owner } of some) owner.returned();
    }
  }

  const endBy = (end: EndClaims) => (claims: readonly OwnedClaim[]) => {
    const before = ending;
    const work = endAll(claims, end);
    ending = work.then(() => before);
    return work;
  };
  // Each resolves when that is stored or has failed, and never rejects.
  return {
    release: endBy(parts.release),
    endFiltered: endBy(parts.endFiltered),
    /** Resolves when the claims have ended that are being ended now. */
    ended: () => ending,
  };
}
