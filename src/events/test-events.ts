import { randomUUID } from "node:crypto";
import { type Scope, webhookIn } from "../calls/index.ts";
import { OWN_USERS } from "../contract/catalogue.ts";
import { type Db, rows } from "../lib/pg/index.ts";
import { withPartitions } from "../schema/index.ts";

/** A test event for one webhook. */
export interface TestEvent {
  apiKeyId: string;
  webhookId: bigint;
  /** The number of the event type, which may be another one than the webhook's. */
  process: number;
  /** The body that the receiver gets. */
  payload: string;
}

/**
 * Stores an event marked as a test, with one pending delivery for this webhook only. If the webhook is paused, or its
 * receiver wants no requests for some time, the first attempt is made nevertheless, as that of its latest test event.
 *
 * @returns the ids of both; null if the webhook was deleted in the meantime, or is not in the scope
 */
export async function queueTestEvent(
  db: Db,
  scope: Scope,
  event: TestEvent,
): Promise<{ eventId: string; deliveryId: string } | null> {
  const inScope = webhookIn(scope, "w");
  const statement = () =>
    rows<{ eventId: string; deliveryId: string }>(
      db,
      // The lock blocks deletion of the webhook, so that deletion also cancels this delivery.
      `with target as (
        select w.id, w.customer from webhooks w
        where w.id = :webhookId::bigint and w.deleted is null and ${inScope.sql} for no key update
      ),
      event as (
        insert into events
          (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload, test)
        select new_event_id(), :apiKeyId::uuid, :key::text, :process::int, coalesce(target.customer, :userId::text), now(), 1, :payload::text, true
        from target returning id
      ),
      queued as (
        insert into queue (id, event_id, webhook_id) select new_delivery_id(event.id), event.id, target.id
        from event, target
        returning id, event_id
      ),
      waiting as (
        update webhooks w set test_delivery = queued.id, probe_attempts = null from queued, target
        where w.id = target.id and (w.paused is not null or w.held_until > now())
      )
      select event_id as "eventId", id as "deliveryId" from queued`,
      { ...event, key: `test/${randomUUID()}`, userId: OWN_USERS.tests, ...inScope.bindings },
    );
  const [made] = await withPartitions(db, statement);
  return made ?? null;
}
