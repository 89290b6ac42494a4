import { DomainError } from "../domain-error.ts";
import { plainArray, textArray } from "./array-literal.ts";
import type { Db } from "./database.ts";
import { rows } from "./database.ts";

/** One occurrence to be published. */
export interface NewEvent {
  apiKeyId: string;
  idempotencyKey: string;
  /** SHA-256 of the request: the same key with another hash is refused. */
  requestSha256: Buffer;
  /** Number of the WebhookProcess. */
  process: number;
  userId: string;
  /** When it happened, ISO 8601; null for now. */
  occurred: string | null;
  /** The body receivers get. */
  payload: string;
}

/** What publishing did. */
export interface Published {
  /** UUIDv7; that of the first call for a duplicate. */
  eventId: string;
  /** Deliveries this call queued. */
  queued: number;
  duplicate: boolean;
}

/** An event as it stands under its idempotency key. */
interface Stored {
  id: string;
  hash: Buffer;
}

/**
 * Stores events and queues a delivery for each live webhook of their processes, all in one statement and so in one
 * transaction. Publishing the same again, within one call too, queues nothing.
 *
 * @returns for each event, in order, what publishing it did, or the refusal ALREADY_EXISTS when its idempotency key
 *   stands for another request; a refused event stops no other
 */
export async function publishEvents(
  db: Db,
  events: readonly NewEvent[],
): Promise<(Published | DomainError)[]> {
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
    for (const [place, row] of await insert(db, missing)) {
      const [key, { requestSha256 }] = missing[place] as [string, NewEvent];
      fresh.set(key, { eventId: row.id, queued: row.queued, duplicate: false });
      stored.set(key, { id: row.id, hash: requestSha256 });
    }
    missing = missing.filter(([key]) => !stored.has(key));
    for (const [place, row] of await find(db, missing))
      stored.set((missing[place] as [string, unknown])[0], row);
    // Gone in between, by retention: then the key is free again.
    missing = missing.filter(([key]) => !stored.has(key));
  }

  return events.map((event, index) => {
    const key = keys[index] as string;
    const made = fresh.get(key);
    fresh.delete(key);
    return made ?? repeated(event, stored.get(key) as Stored);
  });
}

function repeated(event: NewEvent, { id, hash }: Stored): Published | DomainError {
  if (hash.equals(event.requestSha256)) return { eventId: id, queued: 0, duplicate: true };
  return new DomainError(
    "ALREADY_EXISTS",
    "idempotency_key: an event with other content was published under this key; use a new key for a new event",
    { reason: "IDEMPOTENCY_KEY_REUSED" },
  );
}

/** The events that were not there, by their place in the list. */
async function insert(
  db: Db,
  events: readonly (readonly [string, NewEvent])[],
): Promise<Map<number, { id: string; queued: number }>> {
  const all = events.map(([, event]) => event);
  const made = await rows<{ id: string; place: number; queued: number }>(
    db,
    // Ids are given in the order of the list. Rows go in in the order of their keys, so that two statements that
    // wait for each other's keys cannot deadlock.
    `with given as materialized (
        select new_delivery_id() as id, g.* from unnest(:apiKeyIds::uuid[], :idempotencyKeys::text[],
          :hashes::text[], :processes::int[], :userIds::text[], :occurred::timestamptz[], :payloads::text[])
          with ordinality as g(api_key_id, idempotency_key, hash, process, user_id, occurred, payload, place)
      ),
      live as materialized (
        select process, id from webhooks where deleted is null and process = any(:processes::int[])
      ),
      matching as (select process, count(*)::int as webhooks from live group by process),
      event as (
        insert into events
          (id, api_key_id, idempotency_key, request_sha256, process, user_id, occurred, deliveries, payload)
        select g.id, api_key_id, idempotency_key, decode(hash, 'hex'), g.process, user_id, coalesce(occurred, now()),
          coalesce(m.webhooks, 0), payload
        from given g left join matching m on m.process = g.process
        order by api_key_id, idempotency_key collate "C"
        on conflict (api_key_id, idempotency_key) do nothing
        returning id, process, deliveries
      ),
      queued as (
        insert into deliveries (event_id, webhook_id)
        select event.id, live.id from event join live on live.process = event.process order by event.id
      )
      select event.id, g.place::int as place, event.deliveries as queued from event join given g on g.id = event.id`,
    {
      ...keysOf(all),
      hashes: plainArray(all.map(({ requestSha256 }) => requestSha256.toString("hex"))),
      processes: plainArray(all.map(({ process }) => process)),
      userIds: textArray(all.map(({ userId }) => userId)),
      occurred: plainArray(all.map(({ occurred }) => occurred)),
      payloads: textArray(all.map(({ payload }) => payload)),
    },
    { prepare: "publish_events" },
  );
  return new Map(made.map(({ id, place, queued }) => [place - 1, { id, queued }]));
}

/** The events that are there, by their place in the list. */
async function find(db: Db, events: readonly (readonly [string, NewEvent])[]): Promise<Map<number, Stored>> {
  if (events.length === 0) return new Map();
  const found = await rows<Stored & { place: number }>(
    db,
    `select e.id, e.request_sha256 as hash, g.place::int as place
      from unnest(:apiKeyIds::uuid[], :idempotencyKeys::text[]) with ordinality as g(api_key_id, idempotency_key, place)
      join events e on e.api_key_id = g.api_key_id and e.idempotency_key = g.idempotency_key`,
    keysOf(events.map(([, event]) => event)),
  );
  return new Map(found.map(({ id, hash, place }) => [place - 1, { id, hash }]));
}

/** As PostgreSQL arrays. */
function keysOf(events: readonly NewEvent[]): { apiKeyIds: string; idempotencyKeys: string } {
  return {
    apiKeyIds: plainArray(events.map(({ apiKeyId }) => apiKeyId)),
    idempotencyKeys: textArray(events.map(({ idempotencyKey }) => idempotencyKey)),
  };
}
