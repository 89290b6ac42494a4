import { hash } from "node:crypto";
import type { Condition } from "../calls/index.ts";
import { type Bindings, type Db, rows } from "../lib/pg/index.ts";
import { firstIdOf, type IdRange, idRangeOf, NIL_ID } from "../schema/index.ts";

/** The maximum number of events that one search reads. */
const MAX_EVENTS = 1_000;
/** The maximum number of their deliveries, unless the first event alone has more. */
const MAX_RECIPIENTS = 20_000;

/** The number of hexadecimal digits of a term. */
const TERM_DIGITS = 16;

/** The term that `search_terms` stores for a value. Values that differ only in case or outer spaces share it. */
export function termOf(value: string): bigint {
  // Hex is several times as fast as a buffer.
  const digest = hash("sha256", value.trim().toLowerCase(), "hex");
  return BigInt.asIntN(64, BigInt(`0x${digest.slice(0, TERM_DIGITS)}`));
}

/** Restricts the events by the ids of their deliveries. Omitted fields do not restrict. */
export interface EventBounds {
  /** The earliest creation time, inclusive. */
  from?: Date | undefined;
  /** The latest creation time, exclusive. */
  to?: Date | undefined;
  /** Only events that may have deliveries older than this id. */
  before?: string | undefined;
  /** Only events that may have deliveries newer than this id, closest first. */
  after?: string | undefined;
}

/** Events that match a search, in the direction of reading. */
export interface MatchingEvents {
  /** The ids of each event's deliveries. */
  events: (IdRange & { id: string })[];
  /** The id at which the search stopped early; null if no other event matches. */
  searchedTo: string | null;
}

/**
 * The ids of the API keys that have published, including deleted ones: one index probe per key, however many events it
 * has. Notices have the nil id instead of a key, and are left out.
 */
const PUBLISHERS = `
  with recursive publisher(id) as (
    select '${NIL_ID}'::uuid
    union all
    select (select i.api_key_id from idempotency_keys i where i.api_key_id > p.id order by i.api_key_id limit 1)
    from publisher p where p.id is not null
  )
  select id from publisher where id <> '${NIL_ID}'`;

/** The event of a term, if it belongs to a customer. */
const OF_CUSTOMER = `
  select from events e where e.id = t.event_id and (e.user_id = :customer or e.test and exists (
    select from api_keys k where k.id = e.api_key_id and k.customer = :customer)) offset 0`;

/**
 * The events whose user id, idempotency key or searchable values equal a text, newest first; with `after`, the
 * oldest ones that are newer. Reads a limited number; continue from `searchedTo`.
 *
 * @param text trimmed; user ids and idempotency keys are compared as written
 * @param options.keys whether idempotency keys are compared. They belong to publishers, not to installed apps
 * @param options.customer only events of this customer, and test events that its keys have made. Null for all
 */
export async function findMatchingEvents(
  db: Db,
  text: string,
  bounds: EventBounds,
  { keys, customer }: { keys: boolean; customer: string | null },
): Promise<MatchingEvents> {
  const order = bounds.after === undefined ? "desc" : "asc";
  const part = (select: string, id: string, condition: string) => {
    const all = [condition, ...conditionsOf(bounds, id)].join(" and ");
    return `(select ${id} as id from ${select} where ${all} order by ${id} ${order} limit :most::int)`;
  };
  const parts = [
    customer === null
      ? part("search_terms t", "t.event_id", "t.term = :term::bigint")
      : part(`search_terms t cross join lateral (${OF_CUSTOMER}) e`, "t.event_id", "t.term = :term::bigint"),
    // Test events of all customers have one user id.
    ...(customer === null || customer === text ? [part("events e", "e.id", "e.user_id = :text")] : []),
    // By key, because the index starts with it.
    ...(keys
      ? [
          part(
            `(${PUBLISHERS}) k cross join lateral (
              select i.event_id from idempotency_keys i where i.api_key_id = k.id and i.idempotency_key = :text offset 0
            ) i`,
            "i.event_id",
            "true",
          ),
        ]
      : []),
  ];
  // How many webhooks of the operator an event has does not end a customer's page.
  const recipients =
    customer === null ? "e.recipients" : "(select count(*)::int from webhooks where customer = :customer)";
  const found = await rows<{ id: string; recipients: number }>(
    db,
    `select e.id, e.recipients from (${parts.join(" union ")}) found
      cross join lateral (select e.id, ${recipients} as recipients from events e where e.id = found.id offset 0) e
      order by e.id ${order} limit :most::int`,
    { text, customer, term: String(termOf(text)), most: MAX_EVENTS + 1, ...bindingsOf(bounds) },
  );
  return withinLimits(found, order);
}

/**
 * A condition on an event's id: whether a text is one of the values that `findMatchingEvents` compares.
 *
 * @param n distinguishes the names of the values
 */
export function eventMatches(id: string, text: string, n: number, { keys }: { keys: boolean }): Condition {
  const ofKey = keys ? ` or e.idempotency_key = :text${n}` : "";
  return {
    sql: `exists (select from events e where e.id = ${id} and (e.user_id = :text${n}${ofKey}))
      or exists (select from search_terms t where t.term = :term${n}::bigint and t.event_id = ${id})`,
    bindings: { [`text${n}`]: text, [`term${n}`]: String(termOf(text)) },
  };
}

/** Events share the first eight bytes of their ids with their deliveries, and are compared by these. */
function conditionsOf({ from, to, before, after }: EventBounds, id: string): string[] {
  return [
    ...(from ? [`${id} >= :eventsFrom::uuid`] : []),
    ...(to ? [`${id} < :eventsTo::uuid`] : []),
    ...(before === undefined ? [] : [`${id} < :eventsBefore::uuid`]),
    ...(after === undefined ? [] : [`${id} > :eventsAfter::uuid`]),
  ];
}

function bindingsOf({ from, to, before, after }: EventBounds): Bindings {
  const bindings: Bindings = {};
  if (from) bindings.eventsFrom = firstIdOf(from);
  if (to) bindings.eventsTo = firstIdOf(to);
  // An id at the end of a range excludes its event, which has been read.
  if (before !== undefined) {
    const { first, last } = idRangeOf(before);
    bindings.eventsBefore = before === first ? first : last;
  }
  if (after !== undefined) {
    const { first, last } = idRangeOf(after);
    bindings.eventsAfter = after === last ? last : first;
  }
  return bindings;
}

/** Stops before too many deliveries. @param found includes one more than MAX_EVENTS if more events match */
function withinLimits(
  found: readonly { id: string; recipients: number }[],
  order: "asc" | "desc",
): MatchingEvents {
  let taken = 0;
  for (let recipients = 0; taken < Math.min(found.length, MAX_EVENTS); taken += 1) {
    recipients += (found[taken] as { recipients: number }).recipients;
    if (recipients > MAX_RECIPIENTS && taken > 0) break;
  }
  const next = found[taken];
  // Events with the same first bytes are read together, or their deliveries could be skipped.
  if (next) {
    const { first } = idRangeOf(next.id);
    let own = taken;
    while (own > 0 && idRangeOf((found[own - 1] as { id: string }).id).first === first) own -= 1;
    if (own > 0) taken = own;
  }
  const events = found.slice(0, taken).map(({ id }) => ({ id, ...idRangeOf(id) }));
  const last = events.at(-1);
  const searchedTo = next && last ? (order === "desc" ? last.first : last.last) : null;
  return { events, searchedTo };
}
