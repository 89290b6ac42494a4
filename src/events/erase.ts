import { isNotice } from "../contract/catalogue.ts";
import { column, count, type Db, rows, run } from "../lib/pg/index.ts";
import type { Job } from "../lib/process/index.ts";
import { cancelOfErased } from "../queue/index.ts";
import { firstIdOf, idRangeOf, isInRangeOf, NIL_ID, storeSetting, timeOfId } from "../schema/index.ts";

/** The result of one erasure step. */
export interface ErasedStep {
  /** The number of events whose payload was erased. */
  erased: number;
  /** Those of them that are notices. */
  notices: number;
  /** The number of their open deliveries that were cancelled. */
  cancelled: number;
}

/** The setting that stores the progress of `eraseOldPayloads`: it has examined events with smaller ids. */
const ERASED_TO = "payloads_erased_to";
/**
 * The start of the names of settings about days (UTC) with events whose payloads could not be erased yet. The first id of the day
 * follows. The value is the id up to which they have been examined again.
 */
const KEPT = "payloads_kept_";
const DAY_MS = 86_400_000;

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
 * Erases the payloads and search terms of old events in id order, and the response excerpts of their deliveries, which may repeat
 * the payloads. Examines at most `limit` events. Events with open deliveries keep their payloads, until none of their day is open.
 *
 * @param before a UUID; payloads of events with smaller ids are erased
 * @returns the number of events examined; 0 if nothing is left
 */
export async function eraseOldPayloads(db: Db, before: string, limit: number): Promise<number> {
  return db.transaction(async (trx) => {
    const [after = NIL_ID] = await column<string>(
      trx,
      `select value from settings where name = '${ERASED_TO}'`,
    );
    const step = await eraseBetween(trx, after, before, limit);
    if (step === undefined) return eraseKept(trx, before, limit);
    await storeSetting(trx, ERASED_TO, step.last);
    await count(
      trx,
      `insert into settings (name, value)
        select '${KEPT}' || day, day from unnest(:days::text[]) day on conflict (name) do nothing`,
      { days: [...new Set(step.open.map(firstIdOfDay))] },
    );
    return step.examined;
  });
}

/** Erases the payloads of old events that had open deliveries. Examines the events of a day again once none of them is open. */
async function eraseKept(trx: Db, before: string, limit: number): Promise<number> {
  const kept = await rows<{ name: string; after: string }>(
    trx,
    `select name, value as after from settings where starts_with(name, '${KEPT}') order by name`,
  );
  for (const { name, after } of kept) {
    const first = name.slice(KEPT.length);
    const end = firstIdOf(new Date(timeOfId(first).getTime() + DAY_MS));
    if (await anyOpen(trx, first, end)) continue;
    const step = await eraseBetween(trx, after, end < before ? end : before, limit);
    // A delivery that was sent again meanwhile keeps its day.
    if (step?.open.length) continue;
    if (step) {
      await storeSetting(trx, name, step.last);
      return step.examined;
    }
    if (end <= before) await count(trx, "delete from settings where name = :name", { name });
  }
  return 0;
}

/**
 * Erases the payloads of the next events without open deliveries.
 *
 * @returns the number of events examined, the last of them, and those with open deliveries; undefined if no event is left
 */
async function eraseBetween(
  trx: Db,
  after: string,
  before: string,
  limit: number,
): Promise<{ examined: number; last: string; open: string[] } | undefined> {
  const chosen = await column<string>(
    trx,
    `select id from events where id > :after::uuid and id < :before::uuid order by id limit :limit::int
      for no key update`,
    { after, before, limit },
  );
  const [firstEvent, lastEvent] = [chosen[0], chosen.at(-1)];
  if (firstEvent === undefined || lastEvent === undefined) return undefined;
  const { first } = idRangeOf(firstEvent);
  const { last } = idRangeOf(lastEvent);
  // A delivery may have been sent again before the events were locked.
  const open = await openBetween(trx, first, last);
  const range = { first, last, open };
  await count(
    trx,
    `with forgotten as (
        delete from search_terms where event_id between :first::uuid and :last::uuid and event_id <> all(:open::uuid[])
      )
      update events set payload = null
        where id between :first::uuid and :last::uuid and payload is not null and id <> all(:open::uuid[])`,
    range,
  );
  // Ids of an event and its deliveries share the first eight bytes.
  const openBytes = open.map((id) => id.slice(0, 18));
  for (const [table, id] of RESPONSES) {
    await count(
      trx,
      `update ${table} set response_start = null, response_headers = null
        where ${id} >= :first::uuid and ${id} <= :last::uuid and left(${id}::text, 18) <> all(:openBytes::text[])
          and (response_start is not null or response_headers is not null)`,
      { first, last, openBytes },
    );
  }
  return { examined: chosen.length, last: lastEvent, open };
}

/** The ids of events with open deliveries or an unfinished fan-out, from the id `first` to `last`. */
function openBetween(trx: Db, first: string, last: string): Promise<string[]> {
  return column<string>(
    trx,
    `select event_id from queue where id between :first::uuid and :last::uuid
      union select event_id from retries where id between :first::uuid and :last::uuid
      union select event_id from fan_out where event_id between :first::uuid and :last::uuid`,
    { first, last },
  );
}

/** Whether events from the id `first` to `last` have open deliveries or an unfinished fan-out. */
async function anyOpen(trx: Db, first: string, last: string): Promise<boolean> {
  const [isOpen = false] = await column<boolean>(
    trx,
    `select exists (select from queue where id between :first::uuid and :last::uuid)
        or exists (select from retries where id between :first::uuid and :last::uuid)
        or exists (select from fan_out where event_id between :first::uuid and :last::uuid) as open`,
    { first, last },
  );
  return isOpen;
}

function firstIdOfDay(id: string): string {
  const ms = timeOfId(id).getTime();
  return firstIdOf(new Date(ms - (ms % DAY_MS)));
}

/**
 * Erases the payloads of at most `limit` events of a user in one transaction, with their search terms and the response
 * excerpts of their deliveries, which may repeat the payload. Ids, states and counts are kept; open deliveries are cancelled,
 * and no further ones are queued. The claimed deliveries are left to `finishErasures`.
 */
export function erasePayloads(db: Db, userId: string, limit: number): Promise<ErasedStep> {
  return db.transaction(async (trx) => {
    const erased = await rows<{ id: string; process: number }>(
      trx,
      `with chosen as materialized (
          select id from events where user_id = :userId and payload is not null order by id limit :limit::int for update
        ),
        unqueued as (
          delete from fan_out where event_id = any(array(select id from chosen)) returning event_id, remaining
        )
        update events e set payload = null,
          recipients = e.recipients - coalesce((select remaining from unqueued u where u.event_id = e.id), 0)
        where id = any(array(select id from chosen)) and payload is not null returning id, process`,
      { userId, limit },
    );
    const eventIds = erased.map(({ id }) => id);
    if (eventIds.length === 0) return { erased: 0, notices: 0, cancelled: 0 };
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
    return {
      erased: eventIds.length,
      notices: erased.filter(({ process }) => isNotice(process)).length,
      cancelled,
    };
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
    const [unfinished] = await column<string>(
      trx,
      "select value from settings where name = :name for update skip locked",
      { name: UNFINISHED },
    );
    if (!unfinished) return 0;
    const all = unfinished.split(",");
    const eventIds = all.slice(0, MAX_FINISHED);
    const cancelled = await cancelOfErased(trx, eventIds);
    const open = new Set(await openOf(trx, eventIds));
    await eraseResponses(
      trx,
      eventIds.filter((id) => !open.has(id)),
    );
    const left = [...all.slice(MAX_FINISHED), ...open];
    if (left.length > 0) await storeSetting(trx, UNFINISHED, left.join(","));
    else await run(trx, trx("settings").where({ name: UNFINISHED }).delete());
    return cancelled;
  });
}

/** Completes erasures. */
export const ERASURE_JOB: Job<{ db: Db }> = {
  name: "finish erasures",
  run: ({ db }) => finishErasures(db),
};

/** Returns the ids of the given events that have open deliveries. */
function openOf(trx: Db, eventIds: readonly string[]): Promise<string[]> {
  const hasRows = (table: "queue" | "retries") =>
    `exists (select from ${table} q where ${isInRangeOf("q.id", "e.id")} and q.event_id = e.id offset 0)`;
  return column<string>(
    trx,
    `select e.id from unnest(:eventIds::uuid[]) e(id) where ${hasRows("queue")} or ${hasRows("retries")}`,
    { eventIds },
  );
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
