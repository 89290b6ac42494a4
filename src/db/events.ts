import { DomainError } from "../domain-error.ts";
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

/**
 * Stores an event and queues a delivery for each live webhook of its process, in one statement and so in one
 * transaction. Publishing the same again queues nothing.
 *
 * @throws DomainError ALREADY_EXISTS when the idempotency key stands for another request
 */
export async function publishEvent(db: Db, event: NewEvent): Promise<Published> {
  for (;;) {
    const [made] = await rows<{ id: string; queued: number }>(
      db,
      `with live as (
          select id from webhooks where process = :process::int and deleted is null
        ),
        event as (
          insert into events
            (id, api_key_id, idempotency_key, request_sha256, process, user_id, occurred, deliveries, payload)
          values (new_delivery_id(), :apiKeyId::uuid, :idempotencyKey, :requestSha256, :process::int, :userId,
            coalesce(:occurred::timestamptz, now()), (select count(*) from live), :payload)
          on conflict (api_key_id, idempotency_key) do nothing
          returning id
        ),
        queued as (
          insert into deliveries (event_id, webhook_id) select event.id, live.id from event, live returning 1
        )
        select id, (select count(*)::int from queued) as queued from event`,
      { ...event },
    );
    if (made) return { eventId: made.id, queued: made.queued, duplicate: false };

    const [stored] = await rows<{ id: string; hash: Buffer }>(
      db,
      `select id, request_sha256 as hash from events
        where api_key_id = :apiKeyId::uuid and idempotency_key = :idempotencyKey`,
      { apiKeyId: event.apiKeyId, idempotencyKey: event.idempotencyKey },
    );
    // Gone in between, by retention: then the key is free again.
    if (!stored) continue;
    if (stored.hash.equals(event.requestSha256)) return { eventId: stored.id, queued: 0, duplicate: true };
    throw new DomainError(
      "ALREADY_EXISTS",
      "idempotency_key: an event with other content was published under this key; use a new key for a new event",
    );
  }
}
