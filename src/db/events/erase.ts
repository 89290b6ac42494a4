import type { Db } from "../database.ts";
import { count, rows } from "../database.ts";
import { isInRangeOf } from "../partitions.ts";
import { cancelOfErased } from "../queue/endings.ts";

/** What one step erased. */
export interface ErasedStep {
  /** Events whose payload is gone. */
  erased: number;
  /** Open deliveries of theirs that were cancelled. */
  cancelled: number;
}

/** The setting that holds how far `eraseOldPayloads` has come: events with smaller ids have no payload. */
const ERASED_TO = "payloads_erased_to";

/**
 * Erases the payloads of old events, in the order of their ids, at most `limit` in a step. Stops at the first event that has
 * an open delivery.
 *
 * @param before a UUID; payloads of events with smaller ids are erased
 * @param oldestOpen the smallest id of an open delivery or an event that is being fanned out; null when there is none
 * @returns how many events were looked at; 0 when nothing is left
 */
export async function eraseOldPayloads(
  db: Db,
  before: string,
  oldestOpen: string | null,
  limit: number,
): Promise<number> {
  // An event and its deliveries have the first eight bytes in common.
  const firstOpen = oldestOpen === null ? null : `${oldestOpen.slice(0, 18)}-0000-000000000000`;
  const [step] = await rows<{ n: number }>(
    db,
    `with chosen as materialized (
        select id from events
        where id > coalesce((select value::uuid from settings where name = :name), '00000000-0000-0000-0000-000000000000')
          and id < least(:before::uuid, :firstOpen::uuid)
        order by id limit :limit::int
      ),
      erased as (
        update events set payload = null
        where id = any(array(select id from chosen)) and payload is not null
      ),
      moved as (
        insert into settings (name, value)
        select :name, id::text from chosen order by id desc limit 1
        on conflict (name) do update set value = excluded.value
      )
      select count(*)::int as n from chosen`,
    { name: ERASED_TO, before, firstOpen, limit },
  );
  return step?.n ?? 0;
}

/** Texts of responses, in the tables that hold attempts. */
const RESPONSES = [
  ["deliveries", "id"],
  ["attempts", "delivery_id"],
] as const;

/**
 * Erases the payloads of a user's events, at most `limit`, in one transaction: with them the responses to their deliveries,
 * which may repeat what was sent. Ids, states and counts stay; open deliveries are cancelled.
 */
export function erasePayloads(db: Db, userId: string, limit: number): Promise<ErasedStep> {
  return db.transaction(async (trx) => {
    const erased = await rows<{ id: string }>(
      trx,
      `update events set payload = null where id = any(array(
          select id from events where user_id = :userId and payload is not null order by id limit :limit::int for update
        )) and payload is not null returning id`,
      { userId, limit },
    );
    const eventIds = erased.map(({ id }) => id);
    if (eventIds.length === 0) return { erased: 0, cancelled: 0 };
    const cancelled = await cancelOfErased(trx, eventIds);
    for (const [table, id] of RESPONSES) {
      await count(
        trx,
        `update ${table} d set response_start = null
          from unnest(:eventIds::uuid[]) e(id)
          where ${isInRangeOf(`d.${id}`, "e.id")}
            and d.response_start is not null
            ${table === "deliveries" ? "and d.event_id = e.id" : ""}`,
        { eventIds },
      );
    }
    return { erased: eventIds.length, cancelled };
  });
}
