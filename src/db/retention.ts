import type { Db } from "./database.ts";
import { count, rows } from "./database.ts";

/** Rows deleted by one statement: few enough that nobody waits for it. */
const STEP = 1_000;

/** The smallest UUIDv7 of a moment: ids of deliveries and events made before it sort before it. */
export function firstIdOf(moment: Date): string {
  const ms = Math.max(0, moment.getTime()).toString(16).padStart(12, "0");
  return `${ms.slice(0, 8)}-${ms.slice(8)}-7000-8000-000000000000`;
}

/** What one step deleted; all zero when nothing that old is left. */
export interface DeletedStep {
  deliveries: number;
  events: number;
  runs: number;
}

/**
 * Deletes some of what is older than `before`: finished deliveries with their attempts, then events that no delivery
 * is left of (and with them their idempotency keys), then closed runs. Deliveries that are still open, as those of a
 * paused webhook, stay, and so do their events.
 *
 * The ids are in the order of time, so the primary keys serve as the index.
 */
export async function deleteExpired(db: Db, before: Date): Promise<DeletedStep> {
  const bindings = { boundary: firstIdOf(before), before, step: STEP };
  const [row] = await rows<{ n: number }>(
    db,
    `with old as (
      select id from deliveries
      where id < :boundary::uuid and state in ('delivered', 'failed', 'cancelled')
      order by id limit :step::int for update skip locked
    ),
    attempts_gone as (delete from attempts using old where attempts.delivery_id = old.id),
    gone as (delete from deliveries using old where deliveries.id = old.id returning 1)
    select count(*)::int as n from gone`,
    bindings,
  );
  const deliveries = row?.n ?? 0;
  if (deliveries === STEP) return { deliveries, events: 0, runs: 0 };
  const events = await count(
    db,
    `delete from events where id in (
      select e.id from events e
      where e.id < :boundary::uuid and not exists (select from deliveries d where d.event_id = e.id)
      order by e.id limit :step::int)`,
    bindings,
  );
  const runs = await count(
    db,
    `delete from runs where id in (select id from runs where closed < :before order by id limit :step::int)`,
    bindings,
  );
  return { deliveries, events, runs };
}
