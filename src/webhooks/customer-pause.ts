import { stateNotFit } from "../calls/errors/index.ts";
import type { DomainError } from "../contract/errors.ts";
import { type Db, rows, run } from "../lib/pg/index.ts";
import { raiseRevisions } from "./revisions.ts";

/**
 * Pauses the webhooks of a customer that are not paused, or resumes those that this has paused. Webhooks that a user or a circuit breaker
 * has paused stay so. Requires the lock of registrations, and the locked customer with its new state.
 *
 * @returns the number of webhooks that were paused or resumed
 */
export async function pauseWebhooksOf(trx: Db, customer: string, paused: boolean): Promise<number> {
  // Locked first, by a statement of its own: one that has waited for a lock finds rows as they were before the wait.
  await rows(
    trx,
    "select id from webhooks where customer = :customer and deleted is null order by id for no key update",
    { customer },
  );
  const changed = await rows<{ customer: string; process: number }>(
    trx,
    `update webhooks w set paused = case when :paused::bool then now() end, customer_paused = :paused::bool,
        test_delivery = null, probe_attempts = null, modified = now(), revision = w.revision + 1
      where w.customer = :customer and w.deleted is null
        and case when :paused::bool then w.paused is null else w.customer_paused end
      returning w.customer, w.process`,
    { customer, paused },
  );
  await raiseRevisions(trx, changed);
  return changed.length;
}

/** Whether the customer of a locked webhook is paused. */
export async function isCustomerPaused(trx: Db, customer: string | null): Promise<boolean> {
  if (customer === null) return false;
  const paused = trx("customers").select("id").where({ id: customer }).whereNotNull("paused");
  return (await run(trx, paused)).length > 0;
}

/** The error for a resumption of a webhook while its customer is paused. */
export function customerIsPaused(id: bigint): DomainError {
  return stateNotFit(
    `paused: webhook ${id} stays paused, because all webhooks of its customer are; the operator resumes them with ResumeCustomer`,
  );
}
