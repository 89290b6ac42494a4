import { count } from "../../src/lib/pg/database.ts";
import { ensurePartitions } from "../../src/schema/partitions.ts";
import { idOf, ROLLUP, rollup } from "./delivery-history.ts";
import { PAYLOAD_END, PAYLOAD_START } from "./payload.ts";
import { countWebhooks, seedWebhooks } from "./seeding.ts";
import type { Stage } from "./stage.ts";

/** The age of the oldest deliveries, in days. */
export const DAYS = 30;
const WEBHOOKS = 50_000;
/** The number of hosts, named `shop-0.example` and so on. */
export const HOSTS = 5_000;
/** The number of webhooks that get every other delivery. */
const BUSY_WEBHOOKS = 10;
const DELIVERIES_AN_EVENT = 10;
/** The user of every other event. */
export const BUSY_USER = "tenant-1";
/** The number of users of the other events. */
export const USERS = 5_000;
/** The number of deliveries stored by one statement: whole events. */
const CHUNK = 200_000;
const DAY_MS = 86_400_000;

/** The number of events that this number of deliveries belongs to. */
export const eventsOf = (deliveries: number) => deliveries / DELIVERIES_AN_EVENT;
/** The user id of an odd event. */
export const userOf = (event: number) => `tenant-${2 + (event % USERS)}`;

/**
 * Stores deliveries of 30 days, all in final states, with their events, keys, search terms, attempts and statistics: 2 % failed
 * after four attempts, 0.5 % were cancelled, the others were delivered with the first attempt. Returns the webhooks,
 * the busy ones first; the last one has no deliveries.
 */
export async function seedGrownHistory(
  { db, secrets, bench }: Pick<Stage, "db" | "secrets" | "bench">,
  deliveries: number,
): Promise<bigint[]> {
  const urls = Array.from({ length: WEBHOOKS + 1 }, (_, n) => `https://shop-${n % HOSTS}.example/hooks/${n}`);
  const webhooks = await seedWebhooks(db, secrets, urls);
  // Two of the three event types; none of the third.
  await count(db, "update webhooks set process = 1 + id % 2");
  await countWebhooks(db);
  const until = new Date();
  const days = Array.from({ length: DAYS + 1 }, (_, n) => new Date(until.getTime() - n * DAY_MS));
  await ensurePartitions(db, DAYS, days);
  const common = { all: deliveries, each: DELIVERIES_AN_EVENT, days: DAYS, until };
  for (let from = 0; from < deliveries; from += CHUNK) {
    bench.stopping.throwIfAborted();
    const range = { from, to: Math.min(deliveries, from + CHUNK) - 1 };
    await count(db, STORE_EVENTS, {
      ...common,
      ...range,
      busyUser: BUSY_USER,
      users: USERS,
      start: PAYLOAD_START,
      rest: PAYLOAD_END,
    });
    await count(db, STORE_DELIVERIES, {
      ...common,
      ...range,
      webhooks: webhooks.slice(0, -1),
      busy: BUSY_WEBHOOKS,
    });
    bench.show.count("storing", range.to + 1, deliveries);
  }
  for (const [n, day] of days.entries()) {
    bench.stopping.throwIfAborted();
    // From midnight to midnight, so that no hour spans two days.
    const since = new Date(Math.floor(day.getTime() / DAY_MS) * DAY_MS);
    const before = new Date(since.getTime() + DAY_MS);
    await count(db, rollup("hour"), { ...ROLLUP, since, before });
    bench.show.count("statistics of days", n + 1, days.length);
  }
  const aDayAgo = new Date(Math.floor((until.getTime() - DAY_MS) / 60_000) * 60_000);
  await count(db, rollup("minute"), { ...ROLLUP, since: aDayAgo });
  await db.raw("vacuum (analyze)");
  await db.raw("checkpoint");
  return webhooks;
}

/** The moment of event `event`: evenly distributed, the last one now. */
const MOMENT = `lateral (
    select :until::timestamptz - make_interval(secs => (:all::int - event * :each::int) * (:days::int * 86400.0 / :all::int)) as at
  ) m`;

const STORE_EVENTS = `
  with event as (
    insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
    select ${idOf("event")}, k.id, event, 1, case when event % 2 = 0 then :busyUser else 'tenant-' || 2 + event % :users::int end, at,
        :each::int, :start::text || event || :rest::text
      from (select id from api_keys order by created limit 1) k, generate_series(:from::int / :each::int, :to::int / :each::int) event, ${MOMENT}
    returning id, api_key_id, idempotency_key
  ),
  term as (
    insert into search_terms (term, event_id)
    select ('x' || encode(substring(sha256(lower(value)::bytea) from 1 for 8), 'hex'))::bit(64)::bigint, id
      from event, unnest(array[
        'SO-2026-' || lpad(idempotency_key, greatest(6, length(idempotency_key)), '0'),
        'PPI-00-' || lpad((idempotency_key::bigint * 7919)::text, 14, '0')
      ]) value
  )
  insert into idempotency_keys (api_key_id, idempotency_key, event_id, request_sha256)
  select api_key_id, idempotency_key, id, '\\x00'::bytea from event`;

const STORE_DELIVERIES = `
  with entry as materialized (
    select ${idOf("n")} as id, ${idOf("event")} as event_id, at,
      (:webhooks::bigint[])[case when n % 2 = 0 then 1 + (n / 2) % :busy::int
        else 1 + (n::bigint * 7919) % cardinality(:webhooks::bigint[]) end] as webhook_id,
      20 + n % 180 as duration_ms,
      (case when mix < 20 then 'failed' when mix < 25 then 'cancelled' else 'delivered' end)::outcome as outcome
    from generate_series(:from::int, :to::int) n,
      lateral (select n / :each::int as event, (n::bigint * 7919 + 13) % 1000 as mix) e, ${MOMENT}
  ),
  earlier as (
    insert into attempts (delivery_id, number, started, duration_ms, status, response_start)
    select id, number, at + (number - 1) * interval '5 minutes', duration_ms, 503, 'answered'
      from entry cross join generate_series(1, 3) number where outcome = 'failed'
  )
  insert into deliveries (id, event_id, webhook_id, outcome, attempts, round_start, status, duration_ms, started, finished,
    reason, response_start)
  select id, event_id, webhook_id, outcome, case when outcome = 'failed' then 4 else 1 end, 0,
      case when outcome = 'delivered' then 200 else 503 end, duration_ms, at, at + interval '1 second',
      case when outcome = 'cancelled' then 'webhook deleted' end, 'answered'
    from entry`;
