import { reachesWebhook, type Scope, webhookIn } from "../calls/index.ts";
import { isNotice } from "../contract/catalogue.ts";
import { column, type Db, rows } from "../lib/pg/index.ts";
import { WORKERS } from "../queue/index.ts";
import { isInRangeOf } from "../schema/index.ts";

/** A published event. */
export interface StoredEvent {
  id: string;
  /** The number of the WebhookProcess. */
  process: number;
  userId: string;
  /** ISO 8601 in UTC, in microseconds. */
  occurred: string;
  /** The body that receivers get; null if erased. */
  payload: string | null;
}

/** The given events that are still stored, in any order. */
export function findEvents(db: Db, ids: readonly string[]): Promise<StoredEvent[]> {
  return rows<StoredEvent>(
    db,
    `select id, process, user_id as "userId", payload,
        to_char(occurred at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as occurred
      from events where id = any(:ids::uuid[])`,
    { ids: [...ids] },
  );
}

/** The facts of an event, besides its payload. */
export interface EventFacts {
  id: string;
  /** The number of the WebhookProcess. */
  process: number;
  userId: string;
  occurred: Date;
  test: boolean;
  apiKeyId: string;
  /** Null if the key was removed. */
  apiKeyName: string | null;
  idempotencyKey: string;
}

/** An event with the number of its deliveries. */
export interface EventDetails {
  event: EventFacts;
  /** Null if erased. */
  payload: string | null;
  /** The number of the scope's deliveries by state. */
  counts: { state: string; count: number }[];
}

/**
 * The event with this id, which must be a UUID; null if it is not stored, or the scope has no delivery of it and is not that of its
 * customer, for its event type.
 */
export async function getEvent(db: Db, scope: Scope, id: string): Promise<EventDetails | null> {
  const inScope = webhookIn(scope, "w");
  const part = (table: string, state: string) => `
    select ${state} as state, count(*)::int as count from ${table} d join webhooks w on w.id = d.webhook_id
    where ${isInRangeOf("d.id", ":id::uuid")} and d.event_id = :id::uuid and ${inScope.sql} group by 1`;
  const [found] = await rows<EventFacts & { payload: string | null; counts: EventDetails["counts"] | null }>(
    db,
    `select e.id, e.process, e.user_id as "userId", e.occurred, e.test, e.payload, e.api_key_id as "apiKeyId",
        (select name from api_keys where id = e.api_key_id) as "apiKeyName", e.idempotency_key as "idempotencyKey",
        (select json_agg(c) from (
          ${part("queue", `case when d.claimed_by = any(${WORKERS}) then 'delivering' else 'pending' end`)}
          union all ${part("retries", "'retrying'")}
          union all ${part("deliveries", "d.outcome::text")}
          -- Recipients without a row in the queue yet.
          union all select 'pending', remaining from fan_out
            where event_id = :id::uuid and remaining > 0 and ${scope === "everything"}
        ) c) as counts
      from events e where e.id = :id::uuid`,
    { id, ...inScope.bindings },
  );
  if (!found) return null;
  const owner = { customer: found.userId, installedAppId: null, process: found.process };
  if (found.counts === null && !(reachesWebhook(scope, owner) && !found.test)) return null;
  // A notice about a webhook of the operator may have the user of the delivery that has failed.
  if (found.counts === null && scope !== "everything" && isNotice(found.process)) return null;
  const { payload, counts, ...event } = found;
  return { event, payload, counts: counts ?? [] };
}

/** The maximum stored size of a payload that is read for its subject, in bytes. */
const MAX_STORED_BYTES = 8_192;
/** The maximum size of a payload that is read for its subject as JSON, in bytes. */
const MAX_JSON_BYTES = 16_384;

/** The payloads of the given events, except erased and large ones, by id. */
export async function readSmallPayloads(db: Db, ids: readonly string[]): Promise<Map<string, string>> {
  if (ids.length === 0) return new Map();
  const found = await rows<{ id: string; payload: string | null }>(
    db,
    // The stored size is known without reading the payload.
    `select id, case when pg_column_size(payload) <= :stored::int then
          case when octet_length(payload) <= :json::int then payload end
        end as payload
      from events where id = any(:ids::uuid[])`,
    { ids: [...new Set(ids)], stored: MAX_STORED_BYTES, json: MAX_JSON_BYTES },
  );
  return new Map(found.flatMap(({ id, payload }) => (payload === null ? [] : [[id, payload] as const])));
}

/** The ids of the given events whose payload, as receivers get it, contains a text. */
export async function eventsContaining(db: Db, ids: readonly string[], text: string): Promise<Set<string>> {
  const sql = "select id from events where id = any(:ids::uuid[]) and strpos(payload, :text) > 0";
  return new Set(await column<string>(db, sql, { ids: [...new Set(ids)], text }));
}
