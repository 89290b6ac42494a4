import { count, type Db } from "../../src/db/database.ts";
import type { SecretBox } from "../../src/db/secret-box.ts";
import { PAYLOAD_REST, PAYLOAD_START } from "./payload.ts";
import { seedWebhooks } from "./seeding.ts";
import type { Stage } from "./stage.ts";

/** How far back the deliveries go. */
export const DAYS = 7;
/** Webhooks that a history of full size is of. */
export const WEBHOOKS = 1_000;
/** Every other delivery is of one of these. */
export const BUSY_WEBHOOKS = 10;
/** Each event is for so many webhooks. */
const DELIVERIES_AN_EVENT = 10;
/** Deliveries made by one statement. */
const CHUNK = 20_000;

/** Registers webhooks of every event type; answers their ids, the busy ones first. */
export async function seedWebhooksOfAllTypes(db: Db, secrets: SecretBox): Promise<bigint[]> {
  const urls = Array.from({ length: WEBHOOKS }, (_, n) => `https://shop-${n}.example/hooks/orders`);
  const ids = await seedWebhooks(db, secrets, urls);
  await count(db, "update webhooks set process = 1 + id % 3");
  return ids;
}

/**
 * Stores deliveries of a week as they would stand now, with their events, attempts and runs: of 1,000, 969 arrived, 20
 * failed, 5 were cancelled, and 6 of the latest wait for a dispatch or a retry.
 */
export async function seedHistory(
  { db, bench }: Pick<Stage, "db" | "bench">,
  deliveries: number,
  webhooks: readonly bigint[],
): Promise<void> {
  for (let from = 0; from < deliveries; from += CHUNK) {
    bench.stopping.throwIfAborted();
    await count(db, STORE, {
      webhooks,
      busy: BUSY_WEBHOOKS,
      all: deliveries,
      from,
      to: Math.min(deliveries, from + CHUNK) - 1,
      each: DELIVERIES_AN_EVENT,
      days: DAYS,
      start: PAYLOAD_START,
      rest: PAYLOAD_REST,
    });
    bench.show.count("storing", Math.min(deliveries, from + CHUNK), deliveries);
  }
  await count(
    db,
    `insert into runs (workflow_id, first_run_id, started, lease_until, closed, sent, delivered, failed)
      select 'bench-' || n, n, at, at, at + interval '20 seconds', 100, 97, 2
        from generate_series(:days::int * 24 * 60, 1, -1) n, lateral (select now() - n * interval '1 minute' as at) m`,
    { days: DAYS },
  );
  await db.raw("vacuum (analyze) events, deliveries, attempts, webhooks, runs");
  await db.raw("checkpoint");
}

/** A UUIDv7 of the moment `at` in which `n` tells one from another of the same millisecond. */
const idOf = (n: string) =>
  `(lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7000' || '8' || lpad(to_hex(${n}::bigint), 15, '0'))::uuid`;

/** Oldest first; how the states are mixed hangs on the number alone, so that every run of the bench stores the same. */
const STORE = `
  with entry as (
    select n, at, ${idOf("n")} as id, n / :each::int as event,
      (:webhooks::bigint[])[case when n % 2 = 0 then 1 + (n / 2) % :busy::int
        else 1 + (n::bigint * 7919) % cardinality(:webhooks::bigint[]) end] as webhook_id,
      case when n > :all::int * 0.994 and n % 2 = 1 then 'pending'
        when n > :all::int * 0.994 and n % 8 = 0 then 'retrying'
        when mix < 20 then 'failed' when mix < 25 then 'cancelled' else 'delivered' end::delivery_state as state
    from generate_series(:from::int, :to::int) n,
      lateral (select now() - make_interval(secs => (:all::int - n) * (:days::int * 86400.0 / :all::int)) as at, (n::bigint * 7919 + 13) % 1000 as mix) m
  ),
  event as (
    insert into events (id, api_key_id, idempotency_key, request_sha256, process, user_id, occurred, created, deliveries, payload)
    select ${idOf("event")}, gen_random_uuid(), event, '\\x00'::bytea, 1, 'tenant-1', at, at, :each::int,
        :start::text || event || :rest::text
      from (select event, min(at) as at from entry group by event) first
    returning id, idempotency_key
  ),
  tried as (
    select *, case state when 'pending' then 0 when 'failed' then 4 else 1 end as attempts from entry
  ),
  attempt as (
    insert into attempts (delivery_id, number, started, duration_ms, status, response_start)
    select id, number, at + (number - 1) * interval '5 minutes', 20 + n % 180,
        case when state = 'delivered' then 200 else 503 end, 'answered'
      from tried cross join lateral generate_series(1, attempts) number
  )
  insert into deliveries (id, event_id, webhook_id, state, attempts, retry_at, finished, created)
  select tried.id, event.id, webhook_id, state, attempts, case when state = 'retrying' then now() + interval '5 minutes' end,
      case when state in ('delivered', 'failed', 'cancelled') then at + interval '1 second' end, at
    from tried join event on event.idempotency_key = tried.event::text`;
