import { count, type Db } from "../lib/pg/index.ts";

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
