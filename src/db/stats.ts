import type { Db } from "./database.ts";
import { rows } from "./database.ts";
import { firstIdOf } from "./retention.ts";
import { executionOf } from "./sent-requests.ts";

/** Deliveries that `webhookStats` looks at, at most: some 0.3 s of work. */
const COUNTED = 200_000;

/** How many deliveries stand where, and what the runs of the last day did. */
export interface OverviewRow {
  pending: bigint;
  delivering: bigint;
  retrying: bigint;
  failed: bigint;
  cancelled: bigint;
  attemptsLastDay: bigint;
  deliveredLastDay: bigint;
  failedLastDay: bigint;
}

/** Each count is of a partial index, and the day is that of the runs: no row of a delivered delivery is read. */
export async function readOverview(db: Db): Promise<OverviewRow> {
  const [row] = await rows<OverviewRow>(
    db,
    `select
        (select count(*) from deliveries where state = 'pending') as pending,
        open.delivering, open.retrying,
        (select count(*) from deliveries where state = 'failed') as failed,
        (select count(*) from deliveries where state = 'cancelled') as cancelled,
        day.attempts as "attemptsLastDay", day.delivered as "deliveredLastDay", day.failed as "failedLastDay"
      from (
        select count(*) filter (where state = 'delivering') as delivering,
          count(*) filter (where state = 'retrying') as retrying
        from deliveries where state in ('delivering', 'retrying')
      ) open, (
        select coalesce(sum(sent), 0)::bigint as attempts, coalesce(sum(delivered), 0)::bigint as delivered,
          coalesce(sum(failed), 0)::bigint as failed
        from runs where started > now() - interval '24 hours'
      ) day`,
  );
  return row as OverviewRow;
}

/** What the runs did that began in one span of time. */
export interface HistoryRow {
  start: Date;
  attempts: bigint;
  delivered: bigint;
  failed: bigint;
}

/** The 24 hours up to `end` in so many spans, oldest first, those without a run too. */
export function readHistory(db: Db, buckets: number, end: Date): Promise<HistoryRow[]> {
  return rows<HistoryRow>(
    db,
    `with span as (select interval '24 hours' / :buckets::int as length, :end::timestamptz - interval '24 hours' as start),
      done as (
        select width_bucket(extract(epoch from r.started), extract(epoch from span.start),
            extract(epoch from :end::timestamptz), :buckets::int) as bucket,
          sum(sent)::bigint as attempts, sum(delivered)::bigint as delivered, sum(failed)::bigint as failed
        from runs r, span where r.started >= span.start and r.started < :end::timestamptz group by 1
      )
      select span.start + (n - 1) * span.length as start, coalesce(attempts, 0) as attempts,
        coalesce(delivered, 0) as delivered, coalesce(failed, 0) as failed
      from span cross join generate_series(1, :buckets::int) n left join done on done.bucket = n order by n`,
    { buckets, end },
  );
}

/** What became of a webhook's deliveries. */
export interface WebhookStatsRow {
  webhookId: bigint;
  delivered: bigint;
  failed: bigint;
  attempts: bigint;
  averageMs: number;
  longestMs: number;
}

/**
 * Counts by webhook over the deliveries of the last 24 hours, or the latest of them where there are very many.
 *
 * @param most how many deliveries are looked at, at most
 * @returns also from when on deliveries are counted
 */
export async function webhookStats(
  db: Db,
  most = COUNTED,
): Promise<{ since: Date; webhooks: WebhookStatsRow[] }> {
  const day = new Date(Date.now() - 24 * 3_600_000);
  const [oldest] = await rows<{ id: string; created: Date }>(
    db,
    "select id, created from deliveries where id >= :day::uuid order by id desc offset :most::int limit 1",
    { day: firstIdOf(day), most: most - 1 },
  );
  const webhooks = await rows<WebhookStatsRow>(
    db,
    `with tried as (
        select delivery_id, count(*) as n, sum(duration_ms) as total, max(duration_ms) as longest
        from attempts where delivery_id >= :from::uuid group by delivery_id
      )
      select d.webhook_id as "webhookId", count(*) filter (where d.state = 'delivered') as delivered,
        count(*) filter (where d.state = 'failed') as failed, coalesce(sum(t.n), 0)::bigint as attempts,
        coalesce(sum(t.total) / sum(t.n), 0)::float8 as "averageMs", coalesce(max(t.longest), 0) as "longestMs"
      from deliveries d left join tried t on t.delivery_id = d.id
      where d.id >= :from::uuid group by d.webhook_id order by d.webhook_id`,
    { from: oldest?.id ?? firstIdOf(day) },
  );
  return { since: oldest?.created ?? day, webhooks };
}

/** A dispatch run. */
export interface RunRow {
  workflowId: string;
  /** The first execution. */
  runId: string;
  started: Date;
  /** Null while it goes on. */
  closed: Date | null;
  sent: number;
  delivered: number;
  failed: number;
}

/** The last runs, newest first. */
export async function listRuns(db: Db, limit: number): Promise<RunRow[]> {
  const found = await rows<RunRow>(
    db,
    `select workflow_id as "workflowId", first_run_id as "runId", started, closed, sent, delivered, failed
      from runs order by id desc limit :limit::int`,
    { limit },
  );
  return found.map((run) => ({ ...run, runId: executionOf(run.runId) }));
}
