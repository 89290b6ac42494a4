import type { Db } from "../database.ts";
import { count, rows } from "../database.ts";
import { idRangeOf, isInRangeOf, NIL_ID } from "../partitions.ts";
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

/**
 * The setting that lists the ids of erased events with claimed deliveries, separated by commas: `finishErasures` completes their
 * erasure.
 */
const UNFINISHED = "payloads_erased_while_claimed";
/** The maximum number of these events per step. */
const MAX_FINISHED = 100;

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
 * @returns the number of events examined; 0 if nothing is left, or if a delivery among them was sent again meanwhile
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
    const chosen = await rows<{ id: string }>(
      trx,
      `select id from events
        where id > coalesce((select value::uuid from settings where name = :name), '${NIL_ID}')
          and id < least(:before::uuid, :firstOpen::uuid)
        order by id limit :limit::int for no key update`,
      { name: ERASED_TO, before, firstOpen, limit },
    );
    const [first, last] = [chosen[0]?.id, chosen.at(-1)?.id];
    if (first === undefined || last === undefined) return 0;
    const range = { first: idRangeOf(first).first, last: idRangeOf(last).last };
    // A delivery may have been sent again before the events were locked.
    const isOpen = (table: "queue" | "retries") =>
      `exists (select from ${table} where id between :first::uuid and :last::uuid)`;
    const [some] = await rows<{ open: boolean }>(
      trx,
      `select ${isOpen("queue")} or ${isOpen("retries")} as open`,
      range,
    );
    if (some?.open) return 0;
    await count(
      trx,
      `with forgotten as (
          delete from search_terms where event_id between :first::uuid and :last::uuid
        ),
        moved as (
          insert into settings (name, value) values (:name, :last)
          on conflict (name) do update set value = excluded.value
        )
        update events set payload = null where id between :first::uuid and :last::uuid and payload is not null`,
      { name: ERASED_TO, first, last },
    );
    for (const [table, id] of RESPONSES) {
      await count(
        trx,
        `update ${table} set response_start = null, response_headers = null
          where ${id} >= :first::uuid and ${id} <= :last::uuid
            and (response_start is not null or response_headers is not null)`,
        range,
      );
    }
    return chosen.length;
  });
}

/**
 * Erases the payloads of at most `limit` events of a user in one transaction, with their search terms and the response
 * excerpts of their deliveries, which may repeat the payload. Ids, states and counts are kept; open deliveries are cancelled,
 * and no further ones are queued. The claimed deliveries are left to `finishErasures`.
 */
export function erasePayloads(db: Db, userId: string, limit: number): Promise<ErasedStep> {
  return db.transaction(async (trx) => {
    const erased = await rows<{ id: string }>(
      trx,
      `with chosen as materialized (
          select id from events where user_id = :userId and payload is not null order by id limit :limit::int for update
        ),
        unqueued as (
          delete from fan_out where event_id = any(array(select id from chosen)) returning event_id, remaining
        )
        update events e set payload = null,
          recipients = e.recipients - coalesce((select remaining from unqueued u where u.event_id = e.id), 0)
        where id = any(array(select id from chosen)) and payload is not null returning id`,
      { userId, limit },
    );
    const eventIds = erased.map(({ id }) => id);
    if (eventIds.length === 0) return { erased: 0, cancelled: 0 };
    const cancelled = await cancelOfErased(trx, eventIds);
    const open = await openOf(trx, eventIds);
    if (open.length > 0) {
      await count(
        trx,
        `insert into settings as s (name, value) values (:name, :open)
          on conflict (name) do update set value = s.value || ',' || excluded.value`,
        { name: UNFINISHED, open: open.join(",") },
      );
    }
    await count(
      trx,
      "delete from search_terms t using unnest(:eventIds::uuid[]) e(id) where t.event_id = e.id",
      { eventIds },
    );
    await eraseResponses(trx, eventIds);
    return { erased: eventIds.length, cancelled };
  });
}

/**
 * Completes the erasure of events that had claimed deliveries: cancels those that are no longer claimed, and erases the
 * responses of events without open deliveries.
 *
 * @returns the number of deliveries cancelled
 */
export function finishErasures(db: Db): Promise<number> {
  return db.transaction(async (trx) => {
    const [unfinished] = await rows<{ value: string }>(
      trx,
      "select value from settings where name = :name for update skip locked",
      { name: UNFINISHED },
    );
    if (!unfinished) return 0;
    const all = unfinished.value.split(",");
    const eventIds = all.slice(0, MAX_FINISHED);
    const cancelled = await cancelOfErased(trx, eventIds);
    const open = new Set(await openOf(trx, eventIds));
    await eraseResponses(
      trx,
      eventIds.filter((id) => !open.has(id)),
    );
    const left = [...all.slice(MAX_FINISHED), ...open];
    if (left.length === 0) await count(trx, "delete from settings where name = :name", { name: UNFINISHED });
    else
      await count(trx, "update settings set value = :left where name = :name", {
        name: UNFINISHED,
        left: left.join(","),
      });
    return cancelled;
  });
}

/** Returns the ids of the given events that have open deliveries. */
async function openOf(trx: Db, eventIds: readonly string[]): Promise<string[]> {
  const hasRows = (table: "queue" | "retries") =>
    `exists (select from ${table} q where ${isInRangeOf("q.id", "e.id")} and q.event_id = e.id offset 0)`;
  const open = await rows<{ id: string }>(
    trx,
    `select e.id from unnest(:eventIds::uuid[]) e(id) where ${hasRows("queue")} or ${hasRows("retries")}`,
    { eventIds },
  );
  return open.map(({ id }) => id);
}

async function eraseResponses(trx: Db, eventIds: readonly string[]): Promise<void> {
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
}
