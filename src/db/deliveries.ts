import type { Db } from "./database.ts";
import { rows } from "./database.ts";
import { type DeliveryFilter, firstOf } from "./delivery-filter.ts";
import { type Scope, webhookIn } from "./scope.ts";

/** Where a delivery stands, as the column names it. */
export type DeliveryStateName = "pending" | "delivering" | "retrying" | "delivered" | "failed" | "cancelled";

/** One queue entry with what people want to see of its webhook. */
export interface DeliveryRow {
  id: string;
  eventId: string;
  webhookId: bigint;
  process: number;
  url: string;
  state: DeliveryStateName;
  attempts: number;
  /** How many of them belong to earlier rounds. */
  roundStart: number;
  created: Date;
  /** When the next attempt is due, while retrying. */
  retryAt: Date | null;
  finished: Date | null;
  reason: string | null;
}

/** One recorded POST. */
export interface AttemptRow {
  number: number;
  started: Date;
  durationMs: number;
  status: number | null;
  error: string | null;
  responseStart: string | null;
}

const COLUMNS = `d.id, d.event_id as "eventId", d.webhook_id as "webhookId", w.process, w.url, d.state, d.attempts, d.round_start as "roundStart", d.created,
  case when d.state = 'retrying' then d.retry_at end as "retryAt", d.finished, d.reason`;

/** A page of the scope's deliveries, newest first; ids are UUIDv7, so their order is that of time. */
export function listDeliveries(
  db: Db,
  scope: Scope,
  filter: DeliveryFilter,
  limit: number,
): Promise<DeliveryRow[]> {
  const { sql, bindings } = firstOf(scope, filter, limit);
  return rows<DeliveryRow>(
    db,
    `select ${COLUMNS} from (${sql}) d join webhooks w on w.id = d.webhook_id order by d.id desc`,
    bindings,
  );
}

/** One delivery with every attempt, in order; null when the scope has none with this id, which must be a UUID. */
export async function getDelivery(
  db: Db,
  scope: Scope,
  id: string,
): Promise<{ delivery: DeliveryRow; attempts: AttemptRow[] } | null> {
  const inScope = webhookIn(scope, "w");
  const [delivery] = await rows<DeliveryRow>(
    db,
    `select ${COLUMNS} from deliveries d join webhooks w on w.id = d.webhook_id
      where d.id = :id::uuid and ${inScope.sql}`,
    { id, ...inScope.bindings },
  );
  if (!delivery) return null;
  const attempts = await rows<AttemptRow>(
    db,
    `select number, started, duration_ms as "durationMs", status, error, response_start as "responseStart"
      from attempts where delivery_id = :id::uuid order by number`,
    { id },
  );
  return { delivery, attempts };
}
