import type { Knex } from "knex";
import type { Tables } from "knex/types/tables.js";
import { count, type Db, run } from "../lib/pg/index.ts";

/**
 * Writes columns of a webhook, and raises its revision. The caller must raise those of event types.
 *
 * @returns its event type; none if it has no row
 */
export async function writeWebhook(
  trx: Db,
  id: bigint,
  values: Knex.ResolveTableType<Tables["webhooks"], "update">,
): Promise<number[]> {
  const changed = { ...values, modified: trx.fn.now(), revision: trx.raw("revision + 1") };
  const written = await run(trx, trx("webhooks").where({ id }).update(changed).returning("process"));
  return written.map(({ process }) => process);
}

/** Tells the workers that webhooks of these event types have changed. Locks the types by number. */
export async function raiseRevisions(trx: Db, processes: Iterable<number>): Promise<void> {
  const changed = [...new Set(processes)];
  if (changed.length === 0) return;
  await count(
    trx,
    `update processes p set revision = p.revision + 1 from (
        select process from processes where process = any(:changed::int[]) order by process for no key update
      ) held where p.process = held.process`,
    { changed },
  );
}
