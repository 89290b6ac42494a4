import { count, type Db } from "../../src/lib/pg/database.ts";
import { ensurePartitions } from "../../src/schema/partitions.ts";
import { LATENCY_BOUNDS_MS } from "../../src/stats/rollups.ts";
import type { SecretBox } from "../../src/webhooks/secret-box.ts";
import { PAYLOAD_END, PAYLOAD_START } from "./payload.ts";
import { countWebhooks, seedWebhooks } from "./seeding.ts";
import type { Stage } from "./stage.ts";

/** The age of the oldest deliveries, in days. */
export const DAYS = 7;
/** The number of webhooks of a full-size history. */
export const WEBHOOKS = 1_000;
/** The number of webhooks that get every other delivery. */
export const BUSY_WEBHOOKS = 10;
/** The number of webhooks of each event. */
const DELIVERIES_AN_EVENT = 10;
/** The number of deliveries stored by one statement: whole events. */
const CHUNK = 20_000;
const DAY_MS = 86_400_000;
/** The service's default. */
const RETENTION_DAYS = 30;
/** One class per bound, and one for slower attempts. */
const LATENCY_CLASSES = Array.from({ length: LATENCY_BOUNDS_MS.length + 1 }, (_, n) => n);

/** Registers webhooks of every event type. Returns their ids, the busy ones first. */
export async function seedWebhooksOfAllTypes(db: Db, secrets: SecretBox): Promise<bigint[]> {
  const urls = Array.from({ length: WEBHOOKS }, (_, n) => `https://shop-${n}.example/hooks/orders`);
  const ids = await seedWebhooks(db, secrets, urls);
  await count(db, "update webhooks set process = 1 + id % 3");
  await countWebhooks(db);
  return ids;
}

/**
 * Stores deliveries of a week in their current states, with their events, attempts and runs: of 1,000, 969 are
 * delivered, 20 failed, 5 cancelled, and 6 of the latest wait for a dispatch or a retry.
 */
export async function seedHistory(
  { db, bench }: Pick<Stage, "db" | "bench">,
  deliveries: number,
  webhooks: readonly bigint[],
): Promise<void> {
  const until = new Date();
  const days = Array.from({ length: DAYS + 1 }, (_, n) => new Date(until.getTime() - n * DAY_MS));
  await ensurePartitions(db, RETENTION_DAYS, days);
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
      until,
      start: PAYLOAD_START,
      rest: PAYLOAD_END,
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
  await count(db, rollup("minute"), { ...ROLLUP, since: new Date(until.getTime() - DAY_MS) });
  await count(db, rollup("hour"), { ...ROLLUP, since: new Date(0) });
  await db.raw(
    "vacuum (analyze) events, queue, retries, deliveries, attempts, webhooks, runs, rollup_minutes, rollup_hours",
  );
  await db.raw("checkpoint");
}

/** A UUIDv7 of the moment `at`, made unique by `n`. An event and its deliveries start with the same bytes. */
export const idOf = (n: string) =>
  `(lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7000' || '8' || lpad(to_hex(${n}::bigint), 15, '0'))::uuid`;

/**
 * Oldest first. States depend only on the number, so that every run of the bench stores the same. An event's
 * deliveries are created with it.
 */
const STORE = `
  with entry as (
    select n, at, ${idOf("n")} as id, n / :each::int as event,
      (:webhooks::bigint[])[case when n % 2 = 0 then 1 + (n / 2) % :busy::int
        else 1 + (n::bigint * 7919) % cardinality(:webhooks::bigint[]) end] as webhook_id,
      case when n > :all::int * 0.994 and n % 2 = 1 then 'pending'
        when n > :all::int * 0.994 and n % 8 = 0 then 'retrying'
        when mix < 20 then 'failed' when mix < 25 then 'cancelled' else 'delivered' end as state
    from generate_series(:from::int, :to::int) n,
      lateral (
        select :until::timestamptz
            - make_interval(secs => (:all::int - n / :each::int * :each::int) * (:days::int * 86400.0 / :all::int)) as at,
          (n::bigint * 7919 + 13) % 1000 as mix
      ) m
  ),
  event as (
    insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
    select ${idOf("event")}, gen_random_uuid(), event, 1, 'tenant-1', at, :each::int,
        :start::text || event || :rest::text
      from (select event, min(at) as at from entry group by event) first
    returning id, api_key_id, idempotency_key
  ),
  known as (
    insert into idempotency_keys (api_key_id, idempotency_key, event_id, request_sha256)
    select api_key_id, idempotency_key, id, '\\x00'::bytea from event
  ),
  tried as (
    select entry.*, event.id as event_id, case state when 'pending' then 0 when 'failed' then 4 else 1 end as attempts
    from entry join event on event.idempotency_key = entry.event::text
  ),
  attempt as materialized (
    select tried.id, number, at + (number - 1) * interval '5 minutes' as started, 20 + n % 180 as duration_ms,
      case when state = 'delivered' then 200 else 503 end as status,
      number = attempts and state <> 'retrying' as ended
    from tried cross join lateral generate_series(1, attempts) number
  ),
  earlier as (
    insert into attempts (delivery_id, number, started, duration_ms, status, response_start)
    select id, number, started, duration_ms, status, 'answered' from attempt where not ended
  ),
  waiting as (
    insert into queue (id, event_id, webhook_id) select id, event_id, webhook_id from tried where state = 'pending'
  ),
  retried as (
    insert into retries (id, event_id, webhook_id, attempts, round_start, due)
    select id, event_id, webhook_id, attempts, 0, now() + interval '5 minutes' from tried where state = 'retrying'
  )
  insert into deliveries (id, event_id, webhook_id, outcome, attempts, round_start, status, duration_ms, started, finished,
    reason, response_start)
  select tried.id, event_id, webhook_id, state::outcome, attempts, 0, status, duration_ms, started,
      started + interval '1 second', case when state = 'cancelled' then 'webhook deleted' end, 'answered'
    from tried join attempt on attempt.id = tried.id and ended`;

/** The default parameters of `rollup`. */
export const ROLLUP = { bounds: LATENCY_BOUNDS_MS, before: new Date("2100-01-01") };

/**
 * Adds what was stored from `since` to `before` to the rollups, per webhook and for webhook 0, the total, as folding
 * does.
 */
export const rollup = (unit: "minute" | "hour") => `
  insert into rollup_${unit}s
    (webhook_id, start, attempts, delivered, failed, cancelled, total_ms, longest_ms, latency)
  select coalesce(webhook_id, 0), start, count(*), count(*) filter (where outcome = 'delivered'),
      count(*) filter (where outcome = 'failed'), count(*) filter (where outcome = 'cancelled'), sum(duration_ms),
      max(duration_ms), array[${LATENCY_CLASSES.map((n) => `count(*) filter (where class = ${n})`).join(", ")}]::int[]
    from (
      select webhook_id, date_trunc('${unit}', at) as start, outcome, duration_ms,
        width_bucket(duration_ms, :bounds::int[]) as class
      from (
        select webhook_id, finished as at, outcome, duration_ms from deliveries
        union all
        select d.webhook_id, a.started, null, a.duration_ms
        from attempts a join (
          select id, webhook_id from deliveries union all select id, webhook_id from retries
        ) d on d.id = a.delivery_id
      ) change where at >= :since::timestamptz and at < :before::timestamptz
    ) change group by grouping sets ((webhook_id, start), (start))`;
