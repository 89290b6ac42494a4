import { plainArray, textArray } from "../array-literal.ts";
import type { Db } from "../database.ts";
import { rows } from "../database.ts";
import { withPartitions } from "../partitions.ts";
import { termOf } from "./search.ts";

/** An event to publish. */
export interface NewEvent {
  apiKeyId: string;
  idempotencyKey: string;
  /** The SHA-256 of the request. The same idempotency key with another hash is rejected. */
  requestSha256: Buffer;
  /** The number of the WebhookProcess. */
  process: number;
  userId: string;
  /** The time of the event, ISO 8601; null for now. */
  occurred: string | null;
  /** The body that receivers get. */
  payload: string;
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
  hash: Buffer;
}

/**
 * Stores events and queues a delivery for each live webhook of their processes, in one statement and therefore one
 * transaction. Events with more than `MAX_INLINE_RECIPIENTS` webhooks are left to `fanOutStep`, and their deliveries
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
  const keys = events.map(({ apiKeyId, idempotencyKey }) => `${apiKeyId} ${idempotencyKey}`);
  const firsts = new Map<string, NewEvent>();
  for (const [index, event] of events.entries()) {
    const key = keys[index] as string;
    if (!firsts.has(key)) firsts.set(key, event);
  }

  const fresh = new Map<string, Published>();
  const stored = new Map<string, Stored>();
  let missing = [...firsts];
  while (missing.length > 0) {
    for (const [place, row] of await insert(db, missing, maxInline)) {
      const [key, { requestSha256 }] = missing[place] as [string, NewEvent];
      fresh.set(key, { eventId: row.id, queued: row.queued, duplicate: false });
      stored.set(key, { id: row.id, hash: requestSha256 });
    }
    missing = missing.filter(([key]) => !stored.has(key));
    for (const [place, row] of await find(db, missing))
      stored.set((missing[place] as [string, unknown])[0], row);
    // Deleted by retention in the meantime: the key is free again.
    missing = missing.filter(([key]) => !stored.has(key));
  }

  return events.map((event, index) => {
    const key = keys[index] as string;
    const made = fresh.get(key);
    fresh.delete(key);
    return made ?? repeated(event, stored.get(key) as Stored);
  });
}

function repeated(event: NewEvent, { id, hash }: Stored): Published | KeyReused {
  if (hash.equals(event.requestSha256)) return { eventId: id, queued: 0, duplicate: true };
  return { firstEventId: id };
}

/** Inserts the events that are not stored yet. Returns them by position in the list. */
async function insert(
  db: Db,
  events: readonly (readonly [string, NewEvent])[],
  maxInline: number,
): Promise<Map<number, { id: string; queued: number }>> {
  const all = events.map(([, event]) => event);
  const terms = all.flatMap(({ searchable = [] }, index) =>
    searchable.map((value) => ({ place: index + 1, term: termOf(value) })),
  );
  const [sql, prepare] =
    terms.length > 0 ? [INSERT_WITH_TERMS, "publish_searchable"] : [INSERT, "publish_events"];
  const bindings = {
    ...keysOf(all),
    hashes: plainArray(all.map(({ requestSha256 }) => requestSha256.toString("hex"))),
    processes: plainArray(all.map(({ process }) => process)),
    userIds: textArray(all.map(({ userId }) => userId)),
    occurred: plainArray(all.map(({ occurred }) => occurred)),
    payloads: textArray(all.map(({ payload }) => payload)),
    traceparents: plainArray(all.map(({ traceparent = null }) => traceparent)),
    inline: maxInline,
    termPlaces: plainArray(terms.map(({ place }) => place)),
    terms: plainArray(terms.map(({ term }) => term)),
  };
  const made = await withPartitions(db, () =>
    rows<{ id: string; place: number; queued: number }>(db, sql, bindings, { prepare }),
  );
  return new Map(made.map(({ id, place, queued }) => [place - 1, { id, queued }]));
}

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
  recipient as materialized (
    select w.process, w.id from webhooks w
    where w.deleted is null and w.process = any(:processes::int[]) and w.process not in (select process from wide)
  ),
  recipients as (
    select process, count(*)::int as n from recipient group by process
    union all select process, live from wide
  ),
  fresh as (
    insert into idempotency_keys (api_key_id, idempotency_key, event_id, request_sha256)
    select api_key_id, idempotency_key, id, decode(hash, 'hex') from given
    order by api_key_id, idempotency_key collate "C"
    on conflict do nothing returning event_id
  ),
  event as materialized (
    select g.*, coalesce(r.n, 0) as recipients
    from given g left join recipients r on r.process = g.process
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
    select new_delivery_id(event.id), event.id, recipient.id
    from event join recipient on recipient.process = event.process order by event.id
  ),
  left_over as (
    insert into fan_out (event_id, process, revision, remaining)
    select event.id, wide.process, wide.revision, wide.live from event join wide on wide.process = event.process
  )${more}
  select id, place::int as place, recipients as queued from event`;

const INSERT = insertStatement("");
const INSERT_WITH_TERMS = insertStatement(`,
  terms as (
    insert into search_terms (term, event_id)
    select t.term, event.id from unnest(:termPlaces::int[], :terms::bigint[]) t(place, term)
    join event on event.place = t.place order by event.id
  )`);

/** The events that are already stored, by position in the list. */
async function find(db: Db, events: readonly (readonly [string, NewEvent])[]): Promise<Map<number, Stored>> {
  if (events.length === 0) return new Map();
  const found = await rows<Stored & { place: number }>(
    db,
    `select k.event_id as id, k.request_sha256 as hash, g.place::int as place
      from unnest(:apiKeyIds::uuid[], :idempotencyKeys::text[]) with ordinality as g(api_key_id, idempotency_key, place)
      join idempotency_keys k on k.api_key_id = g.api_key_id and k.idempotency_key = g.idempotency_key`,
    keysOf(events.map(([, event]) => event)),
  );
  return new Map(found.map(({ id, hash, place }) => [place - 1, { id, hash }]));
}

/** The keys as PostgreSQL arrays. */
function keysOf(events: readonly NewEvent[]): { apiKeyIds: string; idempotencyKeys: string } {
  return {
    apiKeyIds: plainArray(events.map(({ apiKeyId }) => apiKeyId)),
    idempotencyKeys: textArray(events.map(({ idempotencyKey }) => idempotencyKey)),
  };
}
