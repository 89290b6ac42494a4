import type { Knex } from "knex";
import type { Tables } from "knex/types/tables.js";
import { count, type Db, plainArray, run, textArray } from "../lib/pg/index.ts";

/** An event type in the instance of a customer, or in that of the operator: their webhooks have revisions and counts of their own. */
export interface InstanceType {
  /** The user_id of the customer; null for the operator. */
  customer: string | null;
  process: number;
}

/**
 * Writes columns of a webhook, and raises its revision. The caller must raise that of its event type.
 *
 * @returns its event type and customer; none if it has no row
 */
export async function writeWebhook(
  trx: Db,
  id: bigint,
  values: Knex.ResolveTableType<Tables["webhooks"], "update">,
): Promise<InstanceType[]> {
  const changed = { ...values, modified: trx.fn.now(), revision: trx.raw("revision + 1") };
  return run(trx, trx("webhooks").where({ id }).update(changed).returning(["customer", "process"]));
}

/**
 * Tells the workers that webhooks of these event types have changed. Locks the operator's types by number, then those of customers by
 * customer and number.
 */
export async function raiseRevisions(trx: Db, types: Iterable<InstanceType>): Promise<void> {
  const { operator = [], customers = [] } = Object.groupBy(types, ({ customer }) =>
    customer === null ? "operator" : "customers",
  );
  if (operator.length > 0) {
    await count(
      trx,
      `update processes p set revision = p.revision + 1 from (
          select process from processes where process = any(:changed::int[]) order by process for no key update
        ) held where p.process = held.process`,
      { changed: [...new Set(operator.map(({ process }) => process))] },
    );
  }
  if (customers.length > 0) {
    await count(
      trx,
      `update customer_processes c set revision = c.revision + 1, changed = pg_current_xact_id() from (
          select customer, process from customer_processes
          where (customer, process) in (select * from unnest(:customers::text[], :processes::int[]))
          order by customer collate "C", process for no key update
        ) held where c.customer = held.customer and c.process = held.process`,
      arraysOf(customers),
    );
  }
}

/** The customers and event types as PostgreSQL arrays. */
export function arraysOf(types: readonly InstanceType[]): { customers: string; processes: string } {
  return {
    customers: textArray(types.map(({ customer }) => customer)),
    processes: plainArray(types.map(({ process }) => process)),
  };
}
