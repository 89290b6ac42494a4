import { column, type Db, rows } from "../lib/pg/index.ts";
import type { Backlog } from "../metrics/index.ts";
import { distinctOf, isFree, ofWebhook } from "./conditions.ts";
import { isHeld, paceOf } from "./holds.ts";

/** The maximum number of rows of a table that are counted. A larger number is PostgreSQL's estimate. */
const MAX_COUNTED = 100_000;
/** The maximum number of webhooks whose queue a reading visits; the next reading continues after them. */
const MAX_WEBHOOKS = 10_000;
/** SQL for whether nothing slows the deliveries of webhook `w`: pause, rate limit, or a hold or pace that its receiver has asked for. */
const IS_SENDABLE = `w.paused is null and w.deleted is null and w.rate_limit is null
  and ${isHeld("w")} is not true and (${paceOf("w")}) is null`;
/** The time after which a due retry is overdue, in seconds. Until then, it may just wait for its turn. */
const OVERDUE_S = 60;

/**
 * Reads the backlog. The cost is bounded, however large the backlog is.
 *
 * @param options.after the webhook id after which to search the oldest delivery
 * @param options.maxCounted for tests
 */
export async function readBacklog(
  db: Db,
  options: { after: bigint; maxWebhooks?: number; maxCounted?: number },
): Promise<Backlog> {
  const { after, maxWebhooks = MAX_WEBHOOKS, maxCounted = MAX_COUNTED } = options;
  const counts = await readCounts(db, maxCounted);
  const oldest = await readOldestSendable(db, after, maxWebhooks);
  const [lastRunS = null] = await column<number>(
    db,
    "select extract(epoch from clock_timestamp() - started)::float8 as age from runs order by id desc limit 1",
  );
  return { ...counts, ...oldest, lastRunS };
}

async function readCounts(db: Db, most: number): Promise<Pick<Backlog, "pending" | "retrying" | "overdue">> {
  const counted = (table: "queue" | "retries") => `
    select case when n < :most::int then n else greatest(n, pg_stat_get_live_tuples('${table}'::regclass)) end::float8
      from (select count(*) as n from (select from ${table} order by id limit :most::int) r) counted`;
  const [found] = await rows<Pick<Backlog, "pending" | "retrying" | "overdue">>(
    db,
    `select (${counted("queue")}) + (
        select coalesce(sum(remaining), 0)::float8
        from (select remaining from fan_out order by event_id limit :most::int) f
      ) as pending, (${counted("retries")}) as retrying, (
        select count(*)::int
        from (select webhook_id, due, claimed_by from retries order by id limit :most::int) t
          join webhooks w on w.id = t.webhook_id
        where t.due < now() - make_interval(secs => :overdue::float8) and ${isFree("t")}
          and ${IS_SENDABLE}
      ) as overdue`,
    { most, overdue: OVERDUE_S },
  );
  return found as Pick<Backlog, "pending" | "retrying" | "overdue">;
}

/**
 * The oldest delivery that only the service itself delays: no worker has claimed it, its webhook is not paused, has no rate limit and is not
 * failing (none of its deliveries waits for a retry), and its receiver asks for no hold or pace. Events that are not fanned out yet count
 * too. The age is the time since publishing or, if the delivery was queued again, since then.
 */
async function readOldestSendable(
  db: Db,
  after: bigint,
  most: number,
): Promise<Pick<Backlog, "oldestSendableS" | "next">> {
  const [found] = await rows<{ age: number | null; next: bigint | null }>(
    db,
    `with recursive ${distinctOf("waiting", "webhook_id", "queue", { where: "webhook_id > :after::bigint", most: ":most::int" })},
    oldest(created) as (
      select coalesce(free.queued, time_of_id(free.id)) from waiting s cross join lateral (
        select from webhooks w where w.id = s.webhook_id and ${IS_SENDABLE}
          and not exists (select from retries r where r.webhook_id = w.id)
        offset 0
      ) sendable cross join lateral (
        select id, queued from queue q where ${ofWebhook("q", "s.webhook_id")} and ${isFree("q")}
        order by q.webhook_id, q.id limit 1
      ) free
      union all
      (select time_of_id(event_id) from fan_out order by event_id limit 1)
    )
    select (select extract(epoch from clock_timestamp() - min(created))::float8 from oldest) as age,
      (select case when count(webhook_id) = :most::int then max(webhook_id) end from waiting) as next`,
    { after, most },
  );
  return { oldestSendableS: Math.max(0, found?.age ?? 0), next: found?.next ?? null };
}
