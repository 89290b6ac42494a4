import { randomBytes, randomUUID } from "node:crypto";
import { count, type Db, rows } from "../../src/lib/pg/database.ts";
import type { SecretBox } from "../../src/webhooks/secret-box.ts";
import { newSealedSecret } from "../../src/webhooks/webhook-secrets.ts";
import { PAYLOAD_END, PAYLOAD_START, PROCESS } from "./payload.ts";
import type { Stage } from "./stage.ts";

/** The number of deliveries stored by one statement. */
const CHUNK = 20_000;

/** Registers a webhook for each URL under a new key, for OrderDispatched by default. Returns their ids in the same order. */
export async function seedWebhooks(
  db: Db,
  secrets: SecretBox,
  urls: readonly string[],
  process = PROCESS,
): Promise<bigint[]> {
  const key = randomUUID();
  await count(
    db,
    `insert into api_keys (id, name, prefix, secret_sha256, permissions) values (:key::uuid, 'bench', 'bench', :hash, '{1}')`,
    { key, hash: randomBytes(32) },
  );
  const reserved = await rows<{ id: bigint }>(
    db,
    "select nextval('webhooks_id_seq') as id from generate_series(1, :count::int)",
    { count: urls.length },
  );
  const ids = reserved.map(({ id }) => id);
  await count(
    db,
    `insert into webhooks (id, process, url, target_url, api_key_id, secret) overriding system value
      select id, :process::int, url, url, :key::uuid, decode(secret, 'hex')
        from unnest(:ids::bigint[], :urls::text[], :secrets::text[]) as w(id, url, secret)`,
    {
      process,
      key,
      ids,
      urls,
      secrets: ids.map((id) => newSealedSecret(secrets, id).toString("hex")),
    },
  );
  await countWebhooks(db);
  return ids;
}

/** Registers webhooks of a number of owners for one event type. They have no usable secret. @param customer SQL for the customer of owner `n` */
export async function seedOwners(
  db: Db,
  owners: number,
  webhooksEach: number,
  customer: string,
  process = PROCESS,
): Promise<void> {
  await db.raw(
    `insert into webhooks (process, url, target_url, api_key_id, customer, secret)
      select :process::int, url, url, gen_random_uuid(), ${customer}, '\\x00'
      from generate_series(1, :owners::int) n, generate_series(1, :webhooksEach::int) w,
        lateral (select 'https://localhost/' || n || '/' || w as url) u`,
    { process, owners, webhooksEach },
  );
  await countWebhooks(db);
}

/** Counts the live webhooks of each event type, of the operator and of each customer, as registration does. */
export async function countWebhooks(db: Db): Promise<void> {
  await count(
    db,
    `with live as (
        select process, customer, count(*)::int as n from webhooks where deleted is null group by process, customer
      ),
      of_customers as (
        insert into customer_processes as c (customer, process, revision, live)
        select customer, process, 1, n from live where customer is not null
        on conflict (customer, process) do update set revision = c.revision + 1, live = excluded.live, changed = pg_current_xact_id()
      )
      insert into processes as p (process, revision, live, customers_live)
      select process, 1, coalesce(sum(n) filter (where customer is null), 0), coalesce(sum(n) filter (where customer is not null), 0)
      from live group by process
      on conflict (process) do update set revision = p.revision + 1, live = excluded.live, customers_live = excluded.customers_live`,
  );
}

/** Gives webhooks to a customer, which has events with this user_id. */
export async function giveTo(db: Db, customer: string, webhooks: readonly bigint[]): Promise<void> {
  await count(db, "update webhooks set customer = :customer where id = any(:webhooks::bigint[])", {
    customer,
    webhooks,
  });
  await countWebhooks(db);
}

/** Stores `events` events with a pending delivery for each webhook, as publishing does. */
export async function seedPending(stage: Pick<Stage, "db" | "bench">, pending: Pending): Promise<void> {
  await insertPending(stage, pending);
  await settleTables(stage.db);
}

/** Events to store, each with a delivery for every webhook. */
export interface Pending {
  events: number;
  webhooks: readonly bigint[];
  /** The part of the events whose trace is recorded; the others have a trace that is not. Without it, none has a trace. */
  traced?: number;
  /** The number of the events' type. Defaults to that of OrderDispatched. */
  process?: number;
  /** The `user_id` of the events. Defaults to that of the publishers of the benches. */
  userId?: string;
}

/** The user of events that publishers name. */
export const USER_ID = "tenant-1";

/** Stores pending deliveries, and leaves all other work on the tables to PostgreSQL. */
export async function insertPending(
  { db, bench }: Pick<Stage, "db" | "bench">,
  { events, webhooks, traced, process = PROCESS, userId = USER_ID }: Pending,
): Promise<void> {
  const chunk = Math.max(1, Math.floor(CHUNK / webhooks.length));
  const key = randomUUID();
  for (let from = 1; from <= events; from += chunk) {
    bench.stopping.throwIfAborted();
    await count(
      db,
      `with event as (
        insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload, traceparent)
        select new_event_id(), :key::uuid, n, :process::int, :userId::text, now(), cardinality(:webhooks::bigint[]),
            :start::text || n || :rest::text,
            case when :traced::float8 is not null
              then '00-' || md5(n::text) || '-00f067aa0ba902b7-' || case when random() < :traced::float8 then '01' else '00' end
            end
          from generate_series(:from::int, :to::int) n
        returning id, api_key_id, idempotency_key
      ),
      known as (
        insert into idempotency_keys (api_key_id, idempotency_key, event_id, request_sha256)
        select api_key_id, idempotency_key, id, '\\x00'::bytea from event
      )
      insert into queue (id, event_id, webhook_id)
      select new_delivery_id(event.id), event.id, w from event, unnest(:webhooks::bigint[]) w`,
      {
        key,
        process,
        userId,
        webhooks,
        traced: traced ?? null,
        start: PAYLOAD_START,
        rest: PAYLOAD_END,
        from,
        to: Math.min(events, from + chunk - 1),
      },
    );
    bench.show.count(
      "queueing",
      Math.min(events, from + chunk - 1) * webhooks.length,
      events * webhooks.length,
    );
  }
}

/** Deletes events and deliveries, for example after a warm-up. */
export async function clearDeliveries(db: Db): Promise<void> {
  await db.raw("truncate queue, retries, fan_out, events, idempotency_keys, deliveries, attempts");
}

/** Does the work of autovacuum and checkpointer now, so that it does not disturb measurements. */
async function settleTables(db: Db): Promise<void> {
  await db.raw("vacuum (analyze) events, queue, retries, deliveries, attempts, webhooks");
  await db.raw("checkpoint");
}
