import { type Scope, webhookIn } from "../calls/index.ts";
import type { DeliveryFacts } from "../contract/delivery-headers.ts";
import type { EventFacts } from "../events/index.ts";
import { type Db, rows } from "../lib/pg/index.ts";
import { type AttemptOutcome, WORKERS } from "../queue/index.ts";
import { isInRangeOf, timeOfId } from "../schema/index.ts";
import { readSealedSecrets, type SealedSecret } from "../webhooks/index.ts";

/** The state of a delivery. */
export type DeliveryStateName =
  | "pending"
  | "delivering"
  | "retrying"
  | "delivered"
  | "failed"
  | "cancelled"
  | "filtered";

/** Final states: no further attempt is scheduled. Deliveries in these states are in the log. */
export const FINAL_STATES: readonly DeliveryStateName[] = ["delivered", "failed", "cancelled", "filtered"];

/** States of deliveries that have failed, or have a failed attempt and wait for another. */
export const FAILURE_STATES: readonly DeliveryStateName[] = ["failed", "retrying"];

/** A delivery with the displayed attributes of its webhook. */
export interface DeliveryRow {
  id: string;
  eventId: string;
  webhookId: bigint;
  process: number;
  url: string;
  /** The name of the webhook; null without one. */
  name: string | null;
  /** The customer of the webhook; null for the operator's. */
  customer: string | null;
  state: DeliveryStateName;
  attempts: number;
  /** The number of attempts made in earlier rounds. */
  roundStart: number;
  created: Date;
  /** The time of the next attempt, in the state retrying. */
  retryAt: Date | null;
  finished: Date | null;
  reason: string | null;
  /** The latest recorded attempt; null before the first. */
  last: { status: number | null; error: string | null; durationMs: number } | null;
}

/** A recorded attempt. */
export interface AttemptRow
  extends Omit<AttemptOutcome, "delivered" | "responseHeaders" | "timing" | "retryAfterMs"> {
  number: number;
  /** The header webhook-signature that was sent, of failed attempts. */
  signature: string | null;
  /** The response headers of a failed attempt: names and values in turn. */
  responseHeaders: string[];
  /** The durations of the parts of a failed attempt that opened a connection, as `timingOf` takes them; null for none. */
  timing: number[] | null;
}

/** A delivery in a list. Its creation time is part of its id. */
export type ListedRow = Omit<DeliveryRow, "created">;

/** The URL that the webhook `w` had when the last attempt of `deliveries d` started. */
const URL_AT_END = `coalesce(
    (select o.url from webhook_old_urls o where o.webhook_id = d.webhook_id and o.until > coalesce(d.started, d.finished)
      order by o.until limit 1), w.url) as url`;
/** The latest attempt, from a row of `attempts` or `deliveries`. */
export const LAST = (table: string) =>
  `json_build_object('status', ${table}.status, 'error', ${table}.error, 'durationMs', ${table}.duration_ms)`;

const OF_ALL = `d.id, d.event_id as "eventId", d.webhook_id as "webhookId", w.process, w.name, w.customer, d.attempts`;
const OF_OPEN = `${OF_ALL}, w.url, null::timestamptz as finished, null::text as reason, null::json as last`;
/**
 * The columns of a ListedRow by table, in the same order, from the table `d` and its webhook `w`. The latest attempt of an open delivery
 * is not among them, because it is in another table.
 */
export const COLUMNS = {
  queue: `${OF_OPEN}, case when d.claimed_by = any(${WORKERS}) then 'delivering' else 'pending' end as state,
    d.attempts as "roundStart", null::timestamptz as "retryAt"`,
  retries: `${OF_OPEN}, 'retrying' as state, d.round_start as "roundStart", d.due as "retryAt"`,
  deliveries: `${OF_ALL}, ${URL_AT_END}, d.finished, d.reason, case when d.started is not null then ${LAST("d")} end as last,
    d.outcome::text as state, d.round_start as "roundStart", null::timestamptz as "retryAt"`,
} as const;

/** The tables that hold deliveries. */
export const TABLES = ["queue", "retries", "deliveries"] as const;

/**
 * SQL for whether a table holds the delivery of an event to a webhook. Also for a backfill, whose statement looks at one event after the
 * other until it has queued enough.
 *
 * @param webhookId an SQL expression
 * @param eventId an SQL expression
 */
export const hasDelivery = (table: (typeof TABLES)[number], webhookId: string, eventId: string) =>
  `exists (select from ${table} d where d.webhook_id = ${webhookId} and ${isInRangeOf("d.id", eventId)}
    and d.event_id = ${eventId})`;

export function toDelivery(row: ListedRow): DeliveryRow {
  return { ...row, created: timeOfId(row.id) };
}

/**
 * Loads one delivery with all attempts, in order, in one snapshot. Returns null if the scope has none with this id,
 * which must be a UUID.
 */
export async function getDelivery(
  db: Db,
  scope: Scope,
  id: string,
): Promise<{ delivery: DeliveryRow; attempts: AttemptRow[] } | null> {
  const inScope = webhookIn(scope, "w");
  const parts = TABLES.map(
    (table) => `select ${COLUMNS[table]} from ${table} d join webhooks w on w.id = d.webhook_id
      where d.id = :id::uuid and ${inScope.sql}`,
  );
  const [found] = await rows<ListedRow & { tried: StoredAttempt[] | null }>(
    db,
    `select d.*, (
        select json_agg(a order by a.number) from (
          select number, extract(epoch from started) * 1000 as started, duration_ms as "durationMs", status, error,
            response_start as "responseStart", signature, response_headers as "responseHeaders", timing
          from attempts where delivery_id = :id::uuid
          union all
          select attempts, extract(epoch from started) * 1000, duration_ms, status, error, response_start, signature,
            response_headers, timing
          from deliveries where id = :id::uuid and started is not null
        ) a
      ) as tried
      from (${parts.join(" union all ")}) d`,
    { id, ...inScope.bindings },
  );
  if (!found) return null;
  const { tried, ...delivery } = found;
  const attempts = (tried ?? []).map(toAttempt);
  // As in lists: what ended without another attempt has no latest one.
  const isFinal = FINAL_STATES.includes(delivery.state);
  const last = isFinal
    ? delivery.last
    : (attempts.find(({ number }) => number === delivery.attempts) ?? null);
  return { delivery: toDelivery({ ...delivery, last }), attempts };
}

/** An attempt as JSON. */
interface StoredAttempt extends Omit<AttemptRow, "started" | "responseHeaders" | "timing"> {
  started: number;
  responseHeaders: string | null;
  timing: string | null;
}

function toAttempt({ started, responseHeaders, timing, ...attempt }: StoredAttempt): AttemptRow {
  return {
    ...attempt,
    started: new Date(started),
    responseHeaders: JSON.parse(responseHeaders ?? "[]"),
    timing: timing === null ? null : timing.split(" ").map(Number),
  };
}

/** The request of a delivery and the run that claimed it last. */
export interface SentRequest {
  facts: DeliveryFacts;
  event: EventFacts;
  /** The JSON body; null if erased. */
  payload: string | null;
  /** Null if no run holds it, the run's record is deleted, or the scope is that of an app. */
  run: {
    workflowId: string;
    runId: string;
    /** The retry group of its webhook; null if the run has retried none of its deliveries. */
    group: number | null;
  } | null;
  /** The secrets of its webhook, newest first, expired ones included. Empty if the webhook was deleted. */
  secrets: SealedSecret[];
}

/**
 * The request of the delivery with this id, which must be a UUID of a delivery of the scope; null if it is no longer kept. Runs belong
 * to the whole service and are hidden from limited scopes.
 */
export async function getSentRequest(db: Db, scope: Scope, id: string): Promise<SentRequest | null> {
  const [row] = await rows<
    Pick<SentRequest, "payload" | "run"> & {
      webhookId: bigint;
      process: number;
      installedAppId: string | null;
      event: Omit<EventFacts, "occurred"> & { occurred: number };
    }
  >(
    db,
    `select w.id as "webhookId", e.process,
        w.installed_app_id as "installedAppId", e.payload, json_build_object('id', e.id, 'process', e.process,
          'userId', e.user_id, 'occurred', floor(extract(epoch from e.occurred) * 1000), 'test', e.test,
          'apiKeyId', e.api_key_id, 'apiKeyName', (select name from api_keys where id = e.api_key_id),
          'idempotencyKey', e.idempotency_key) as event,
        case when r.id is not null then
          json_build_object('workflowId', r.workflow_id, 'runId', r.first_run_id, 'group', g.group_number) end as run
      from (
          ${TABLES.map((table) => `select id, event_id, webhook_id, run_id from ${table} where id = :id::uuid`).join(" union all ")}
        ) d join webhooks w on w.id = d.webhook_id join events e on e.id = d.event_id
        left join runs r on r.id = d.run_id
        left join run_groups g on g.run_id = d.run_id and g.webhook_id = d.webhook_id`,
    { id },
  );
  if (!row) return null;
  const { payload, run, webhookId, process, installedAppId } = row;
  const event = { ...row.event, occurred: new Date(row.event.occurred) };
  return {
    facts: { id, process, installedAppId, userId: event.userId, test: event.test },
    event,
    payload,
    secrets: await readSealedSecrets(db, webhookId),
    run: scope === "everything" ? run : null,
  };
}
