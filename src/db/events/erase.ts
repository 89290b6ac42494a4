import type { Db } from "../database.ts";
import { count, rows } from "../database.ts";
import { idRangeOf, isInRangeOf } from "../partitions.ts";
import { cancelOfErased } from "../queue/endings.ts";

/** The result of one erasure step. */
export interface ErasedStep {
  /** The number of events whose payload was erased. */
  erased: number;
  /** The number of their open deliveries that were cancelled. */
  cancelled: number;
}

/** The setting that stores the progress of `eraseOldPayloads`: events with smaller ids have no payload. */
const ERASED_TO = "payloads_erased_to";

/** The tables that hold attempts with the start and the headers of their responses. */
const RESPONSES = [
  ["deliveries", "id"],
  ["attempts", "delivery_id"],
] as const;

/**
 * Erases the payloads and search terms of old events in id order, at most `limit` per step, and the response excerpts of their
 * deliveries, which may repeat the payloads. Stops at the first event with an open delivery.
 *
 * @param before a UUID; payloads of events with smaller ids are erased
 * @param oldestOpen the smallest id of an open delivery or an event with unfinished fan-out; null if there is none
 * @returns the number of events examined; 0 if nothing is left
 */
export async function eraseOldPayloads(
  db: Db,
  before: string,
  oldestOpen: string | null,
  limit: number,
): Promise<number> {
  // Ids of an event and its deliveries share the first eight bytes.
  const firstOpen = oldestOpen === null ? null : `${oldestOpen.slice(0, 18)}-0000-000000000000`;
  return db.transaction(async (trx) => {
    const [step] = await rows<{ n: number; first: string; last: string }>(
      trx,
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
        forgotten as (
          delete from search_terms
          where event_id >= (select id from chosen order by id limit 1)
            and event_id <= (select id from chosen order by id desc limit 1)
        ),
        moved as (
          insert into settings (name, value)
          select :name, id::text from chosen order by id desc limit 1
          on conflict (name) do update set value = excluded.value
        )
        select count(*)::int as n, (array_agg(id order by id))[1] as first, (array_agg(id order by id desc))[1] as last
        from chosen`,
      { name: ERASED_TO, before, firstOpen, limit },
    );
    if (!step || step.n === 0) return 0;
    for (const [table, id] of RESPONSES) {
      await count(
        trx,
        `update ${table} set response_start = null, response_headers = null
          where ${id} >= :first::uuid and ${id} <= :last::uuid
            and (response_start is not null or response_headers is not null)`,
        { first: idRangeOf(step.first).first, last: idRangeOf(step.last).last },
      );
    }
    return step.n;
  });
}

/**
 * Erases the payloads of at most `limit` events of a user in one transaction, with their search terms and the response
 * excerpts of their deliveries, which may repeat the payload. Ids, states and counts are kept; open deliveries are cancelled.
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
    await count(
      trx,
      "delete from search_terms t using unnest(:eventIds::uuid[]) e(id) where t.event_id = e.id",
      { eventIds },
    );
    for (const [table, id] of RESPONSES) {
      await count(
        trx,
        `update ${table} d set response_start = null, response_headers = null
          from unnest(:eventIds::uuid[]) e(id)
          where ${isInRangeOf(`d.${id}`, "e.id")}
            and (d.response_start is not null or d.response_headers is not null)
            ${table === "deliveries" ? "and d.event_id = e.id" : ""}`,
        { eventIds },
      );
    }
    return { erased: eventIds.length, cancelled };
  });
}
