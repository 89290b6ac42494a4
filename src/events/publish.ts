import { type Db, plainArray, rows, textArray } from "../lib/pg/index.ts";
import { withPartitions } from "../schema/index.ts";
import { termOf } from "./search.ts";

/** An event to publish. */
export interface NewEvent {
  apiKeyId: string;
  idempotencyKey: string;
  /** The SHA-256 of the request, in hex. The same idempotency key with another hash is rejected. */
  requestSha256: string;
  /** The number of the WebhookProcess. */
  process: number;
  userId: string;
  /** The time of the event, ISO 8601; null for now. */
  occurred: string | null;
  /** The body that receivers get. */
  payload: string;
  /** The path of the payload in its request, for errors. */
  path?: string;
  /** The values of the payload by which its deliveries are found. Defaults to none. */
  searchable?: readonly string[];
  /** The W3C Trace Context that the event belongs to. Defaults to null: none. */
  traceparent?: string | null;
}

/**
 * The maximum number of recipients queued while publishing. Dispatch fans out larger events in steps, so that
 * publishing stays fast.
 */
export const MAX_INLINE_RECIPIENTS = 1_000;

/** The result of publishing an event. */
export interface Published {
  /** A UUIDv7. For a duplicate, the id of the first call. */
  eventId: string;
  /** The number of deliveries queued by this call. */
  queued: number;
  duplicate: boolean;
}

/** The result for an event whose idempotency key was already used for a different event. */
export interface KeyReused {
  /** The id of the event first published with the key. */
  firstEventId: string;
}

/** The stored event of an idempotency key. */
interface Stored {
  id: string;
  hash: string;
}

/**
 * Stores events and queues a delivery for each live webhook of their processes that belongs to the operator, or to the
 * customer with the event's user_id, in one statement and therefore one transaction. Events with more than `MAX_INLINE_RECIPIENTS` webhooks are left to `fanOutStep`, and their deliveries
 * counted. Publishing a duplicate, also within one call, queues nothing.
 *
 * @param maxInline the maximum number of recipients queued inline. Defaults to MAX_INLINE_RECIPIENTS
 * @returns the result for each event, in order: Published, or KeyReused if its idempotency key was used for a
 *   different request. A rejected event does not affect the others
 */
export async function publishEvents(
  db: Db,
  events: readonly NewEvent[],
  maxInline = MAX_INLINE_RECIPIENTS,
): Promise<(Published | KeyReused)[]> {
  const firsts = firstPositions(events);
  const results = new Array<Published | KeyReused>(events.length);
  /** By the position of the first event with the idempotency key. */
  const stored = new Array<Stored | undefined>(events.length);
  const isMissing = (position: number) => stored[position] === undefined;
  let missing = firsts.filter((first, position) => first === position);
  while (missing.length > 0) {
    for (const { id, place, queued } of await insert(db, at(events, missing), maxInline)) {
      const position = missing[place - 1] as number;
      stored[position] = { id, hash: (events[position] as NewEvent).requestSha256 };
      results[position] = { eventId: id, queued, duplicate: false };
    }
    missing = missing.filter(isMissing);
    for (const { id, hash, place } of await find(db, at(events, missing))) {
      const position = missing[place - 1] as number;
      stored[position] = { id, hash };
      results[position] = repeated(events[position] as NewEvent, { id, hash });
    }
    // Deleted by retention in the meantime: the key is free again.
    missing = missing.filter(isMissing);
  }
  for (const [position, first] of firsts.entries()) {
    if (first !== position)
      results[position] = repeated(events[position] as NewEvent, stored[first] as Stored);
  }
  return results;
}

/** For each event, the position of the first one with its idempotency key. */
function firstPositions(events: readonly NewEvent[]): number[] {
  const known = new Map<string, number>();
  return events.map(({ apiKeyId, idempotencyKey }, position) => {
    const key = `${apiKeyId} ${idempotencyKey}`;
    const first = known.get(key);
    if (first !== undefined) return first;
    known.set(key, position);
    return position;
  });
}

const at = (events: readonly NewEvent[], positions: readonly number[]) =>
  positions.map((position) => events[position] as NewEvent);

function repeated(event: NewEvent, { id, hash }: Stored): Published | KeyReused {
  if (hash === event.requestSha256) return { eventId: id, queued: 0, duplicate: true };
  return { firstEventId: id };
}

/** Inserts the events that are not stored yet. Returns them with their places in the list, from 1. */
function insert(
  db: Db,
  events: readonly NewEvent[],
  maxInline: number,
): Promise<{ id: string; place: number; queued: number }[]> {
  const termPlaces: number[] = [];
  const terms: bigint[] = [];
  for (const [index, { searchable = [] }] of events.entries()) {
    for (const value of searchable) {
      termPlaces.push(index + 1);
      terms.push(termOf(value));
    }
  }
  const [sql, prepare] =
    terms.length > 0 ? [INSERT_WITH_TERMS, "publish_searchable"] : [INSERT, "publish_events"];
  const bindings = {
    ...keysOf(events),
    hashes: plainArray(events.map(({ requestSha256 }) => requestSha256)),
    processes: plainArray(events.map(({ process }) => process)),
    userIds: textArray(events.map(({ userId }) => userId)),
    occurred: plainArray(events.map(({ occurred }) => occurred)),
    payloads: textArray(events.map(({ payload }) => payload)),
    traceparents: plainArray(events.map(({ traceparent = null }) => traceparent)),
    inline: maxInline,
    termPlaces: plainArray(termPlaces),
    terms: plainArray(terms),
  };
  return withPartitions(db, () => rows(db, sql, bindings, { prepare }));
}

/**
 * SQL for the live webhooks of `source` that satisfy a condition.
 *
 * The index `webhooks_live` has the order of the webhooks. As no other has, and as the planner expects to read only the first of them, it
 * uses that one whatever its statistics: another would read the webhooks of all customers. There is no limit in fact.
 */
const liveOf = (source: string, instance: string) => `
  ${source} cross join lateral (
    -- A condition on each webhook would read all webhooks of the wide events, and then leave them out.
    select w.process, w.customer, w.id from webhooks w
    where ${instance} and w.deleted is null
    order by w.customer, w.process, w.target_url limit (select 1000000000)
  ) w`;

/**
 * Ids are assigned in the order of the list. Idempotency keys are inserted in sorted order, so that concurrent
 * statements cannot deadlock on each other's keys.
 */
const insertStatement = (more: string) => `
  with given as materialized (
    select new_event_id() as id, g.* from unnest(:apiKeyIds::uuid[], :idempotencyKeys::text[],
      :hashes::text[], :processes::int[], :userIds::text[], :occurred::timestamptz[], :payloads::text[],
      :traceparents::text[])
      with ordinality as g(api_key_id, idempotency_key, hash, process, user_id, occurred, payload, traceparent, place)
  ),
  wide as materialized (
    select process, revision, live from processes where process = any(:processes::int[]) and live > :inline::int
  ),
  narrow as (
    select distinct process from given where process not in (select process from wide)
  ),
  recipient as materialized (
    select w.process, w.id from ${liveOf("narrow", "w.customer is null and w.process = narrow.process")}
  ),
  recipients as (
    select process, count(*)::int as n from recipient group by process
    union all select process, live from wide
  ),
  -- The customers with webhooks for the events. A customer is wide if its webhooks and the operator's are too many to queue inline.
  customer as materialized (
    select c.*, coalesce(p.revision, 0) as operator_revision, coalesce(p.live, 0) as operator_live,
      coalesce(p.live, 0) + c.live > :inline::int as is_wide
    from (select distinct process, user_id from given) g
      cross join lateral (
        select c.customer, c.process, c.revision, c.live from customer_processes c
        where c.customer = g.user_id and c.process = g.process and c.live > 0 offset 0
      ) c
      left join processes p on p.process = c.process
  ),
  customer_recipient as materialized (
    select w.process, w.customer, w.id from ${liveOf(
      "(select * from customer where not is_wide) c",
      "w.customer = c.customer and w.process = c.process",
    )}
  ),
  customer_recipients as (
    select process, customer, count(*)::int as n, false as is_wide from customer_recipient group by process, customer
    union all select process, customer, live, true from customer where is_wide
  ),
  fresh as (
    insert into idempotency_keys (api_key_id, idempotency_key, event_id, request_sha256)
    select api_key_id, idempotency_key, id, decode(hash, 'hex') from given
    order by api_key_id, idempotency_key collate "C"
    on conflict do nothing returning event_id
  ),
  event as materialized (
    select g.*, coalesce(r.n, 0) + coalesce(c.n, 0) as recipients, c.customer, coalesce(c.is_wide, false) as is_wide
    from given g
      left join recipients r on r.process = g.process
      left join customer_recipients c on c.process = g.process and c.customer = g.user_id
    where g.id in (select event_id from fresh)
  ),
  stored as (
    insert into events
      (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload, traceparent)
    select id, api_key_id, idempotency_key, process, user_id, coalesce(occurred, now()), recipients, payload, traceparent
    from event order by id
  ),
  queued as (
    insert into queue (id, event_id, webhook_id)
    select new_delivery_id(event_id), event_id, id from (
      select event.id as event_id, recipient.id from event join recipient on recipient.process = event.process
      where not event.is_wide
      union all
      select event.id, r.id from event
        join customer_recipient r on r.process = event.process and r.customer = event.customer
    ) delivery order by event_id
  ),
  left_over as (
    insert into fan_out (event_id, process, revision, remaining, customer, customer_revision)
    select event.id, wide.process, wide.revision, wide.live, null, null
      from event join wide on wide.process = event.process where not event.is_wide
    union all
    select event.id, c.process, c.operator_revision, event.recipients, c.customer, c.revision
      from event join customer c on c.process = event.process and c.customer = event.customer where event.is_wide
  )${more}
  select id, place::int as place, recipients as queued from event`;

const INSERT = insertStatement("");
const INSERT_WITH_TERMS = insertStatement(`,
  terms as (
    insert into search_terms (term, event_id)
    select t.term, event.id from unnest(:termPlaces::int[], :terms::bigint[]) t(place, term)
    join event on event.place = t.place order by event.id
  )`);

/** The events that are already stored, with their places in the list, from 1. */
async function find(db: Db, events: readonly NewEvent[]): Promise<(Stored & { place: number })[]> {
  if (events.length === 0) return [];
  return rows(
    db,
    `select k.event_id as id, encode(k.request_sha256, 'hex') as hash, g.place::int as place
      from unnest(:apiKeyIds::uuid[], :idempotencyKeys::text[]) with ordinality as g(api_key_id, idempotency_key, place)
      join idempotency_keys k on k.api_key_id = g.api_key_id and k.idempotency_key = g.idempotency_key`,
    keysOf(events),
  );
}

/** The keys as PostgreSQL arrays. */
function keysOf(events: readonly NewEvent[]): { apiKeyIds: string; idempotencyKeys: string } {
  return {
    apiKeyIds: plainArray(events.map(({ apiKeyId }) => apiKeyId)),
    idempotencyKeys: textArray(events.map(({ idempotencyKey }) => idempotencyKey)),
  };
}
