import type { Db } from "./database.ts";
import { rows } from "./database.ts";
import { firstIdOf } from "./retention.ts";
import { type AppScope, type Condition, type Scope, webhookIn } from "./scope.ts";
import { executionOf } from "./sent-requests.ts";

/** Deliveries that `webhookStats` looks at, at most: some 0.3 s of work. */
const COUNTED = 200_000;
const DAY_MS = 24 * 3_600_000;

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

/**
 * Counts by state. For the whole service each count is of a partial index, and the day is that of the runs: no row of a
 * delivered delivery is read. Runs mix the deliveries of all webhooks, so the day of an app's scope is that of the
 * deliveries that were created within it.
 */
export async function readOverview(db: Db, scope: Scope): Promise<OverviewRow> {
  if (scope !== "everything") return readAppOverview(db, scope);
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

async function readAppOverview(db: Db, scope: AppScope): Promise<OverviewRow> {
  const inScope = webhookIn(scope, "w");
  const inState = (state: string) =>
    `(select count(*) from own join deliveries d on d.webhook_id = own.id where d.state = '${state}')`;
  const [row] = await rows<OverviewRow>(
    db,
    `with own as materialized (select w.id from webhooks w where ${inScope.sql})
      select ${inState("pending")} as pending, ${inState("delivering")} as delivering,
        ${inState("retrying")} as retrying, ${inState("failed")} as failed, ${inState("cancelled")} as cancelled,
        day.attempts as "attemptsLastDay", day.delivered as "deliveredLastDay", day.failed as "failedLastDay"
      from (
        select coalesce(sum(d.attempts), 0)::bigint as attempts,
          count(*) filter (where d.state = 'delivered') as delivered, count(*) filter (where d.state = 'failed') as failed
        from own join deliveries d on d.webhook_id = own.id where d.id >= :day::uuid
      ) day`,
    { day: firstIdOf(new Date(Date.now() - DAY_MS)), ...inScope.bindings },
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

/**
 * The 24 hours up to `end` in so many spans, oldest first, those without a run too. In the scope of an app the spans
 * hold the deliveries that were created in them.
 */
export function readHistory(db: Db, scope: Scope, buckets: number, end: Date): Promise<HistoryRow[]> {
  const { sql, bindings } = scope === "everything" ? runsDone : appDone(scope, end);
  return rows<HistoryRow>(
    db,
    `with span as (select interval '24 hours' / :buckets::int as length, :end::timestamptz - interval '24 hours' as start),
      done as (${sql} group by 1)
      select span.start + (n - 1) * span.length as start, coalesce(attempts, 0) as attempts,
        coalesce(delivered, 0) as delivered, coalesce(failed, 0) as failed
      from span cross join generate_series(1, :buckets::int) n left join done on done.bucket = n order by n`,
    { buckets, end, ...bindings },
  );
}

/** The span that a time is in, from 1. */
const bucketOf = (time: string) => `width_bucket(extract(epoch from ${time}), extract(epoch from span.start),
  extract(epoch from :end::timestamptz), :buckets::int) as bucket`;

const runsDone: Condition = {
  sql: `select ${bucketOf("r.started")}, sum(sent)::bigint as attempts, sum(delivered)::bigint as delivered,
      sum(failed)::bigint as failed
    from runs r, span where r.started >= span.start and r.started < :end::timestamptz`,
  bindings: {},
};

function appDone(scope: AppScope, end: Date): Condition {
  const inScope = webhookIn(scope, "w");
  return {
    sql: `select ${bucketOf("d.created")}, sum(d.attempts)::bigint as attempts,
        count(*) filter (where d.state = 'delivered') as delivered, count(*) filter (where d.state = 'failed') as failed
      from span, webhooks w join deliveries d on d.webhook_id = w.id
      where ${inScope.sql} and d.id >= :firstId::uuid and d.created >= span.start and d.created < :end::timestamptz`,
    bindings: { firstId: firstIdOf(new Date(end.getTime() - DAY_MS)), ...inScope.bindings },
  };
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
 * Counts by webhook over the scope's deliveries of the last 24 hours, or the latest of them where there are very many.
 *
 * @param most how many deliveries are looked at, at most
 * @returns also from when on deliveries are counted
 */
export async function webhookStats(
  db: Db,
  scope: Scope,
  most = COUNTED,
): Promise<{ since: Date; webhooks: WebhookStatsRow[] }> {
  const day = new Date(Date.now() - DAY_MS);
  const inScope = webhookIn(scope, "w");
  // An app has few of the deliveries: those of each of its webhooks are read, instead of everybody's.
  const latest =
    scope === "everything"
      ? "select d.id, d.created from deliveries d where d.id >= :day::uuid"
      : `select d.id, d.created from webhooks w cross join lateral (
          select id, created from deliveries where webhook_id = w.id and id >= :day::uuid order by id desc limit :most::int
        ) d where ${inScope.sql}`;
  const [oldest] = await rows<{ id: string; created: Date }>(
    db,
    `${latest} order by d.id desc offset :most::int - 1 limit 1`,
    { day: firstIdOf(day), most, ...inScope.bindings },
  );
  const { deliveries, attempts } = scope === "everything" ? ALL_COUNTED : OWN_COUNTED;
  const webhooks = await rows<WebhookStatsRow>(
    db,
    `with counted as (${deliveries} and ${inScope.sql}),
      tried as (
        select delivery_id, count(*) as n, sum(duration_ms) as total, max(duration_ms) as longest
        from (${attempts}) attempt group by delivery_id
      )
      select d.webhook_id as "webhookId", count(*) filter (where d.state = 'delivered') as delivered,
        count(*) filter (where d.state = 'failed') as failed, coalesce(sum(t.n), 0)::bigint as attempts,
        coalesce(sum(t.total) / sum(t.n), 0)::float8 as "averageMs", coalesce(max(t.longest), 0) as "longestMs"
      from counted d left join tried t on t.delivery_id = d.id
      group by d.webhook_id order by d.webhook_id`,
    { from: oldest?.id ?? firstIdOf(day), ...inScope.bindings },
  );
  return { since: oldest?.created ?? day, webhooks };
}

/** Everybody's deliveries and attempts, each table by its own primary key. */
const ALL_COUNTED = {
  deliveries: "select d.id, d.webhook_id, d.state from deliveries d where d.id >= :from::uuid",
  attempts: "select * from attempts where delivery_id >= :from::uuid",
};

/** Those of some webhooks, by the index of each webhook's deliveries. */
const OWN_COUNTED = {
  deliveries: `select d.id, d.webhook_id, d.state from webhooks w join deliveries d on d.webhook_id = w.id
    where d.id >= :from::uuid`,
  attempts: "select a.* from counted join attempts a on a.delivery_id = counted.id",
};

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
