import type {
  DispatchRun,
  HistoryBucket,
  Overview,
  WebhookInterval,
  WebhookPeriod,
  WebhookStats,
} from "../../gen/webhook/v1/stats_pb.ts";
import { type Scope, webhookIn } from "../calls/index.ts";
import type { FieldsOf } from "../contract/present.ts";
import { column, count, type Db, rows } from "../lib/pg/index.ts";
import { isFree, WORKERS } from "../queue/index.ts";
import { countsSince, MINUTE_RETENTION_HOURS } from "./rollups.ts";

const DAY_MS = 24 * 3_600_000;

/** Current counts by state, and outcomes in the last 24 hours. */
export interface OverviewRow extends FieldsOf<Overview, "bottlenecks" | "oldestPending" | "oldestRetrying"> {
  /** The bottlenecks of live workers. Empty for an app or a customer. Processes of a newer release may name others. */
  bottlenecks: string[];
  /** The creation of the oldest delivery; null without one. */
  oldestPending: Date | null;
  oldestRetrying: Date | null;
}

type Counted = "attempts" | "failed_attempts" | "delivered" | "failed" | "cancelled" | "filtered";
/** SQL for the sums of columns of `countsSince`, 0 without rows, under the names of the columns in camel case. */
const sumsOf = (...columns: Counted[]) =>
  columns
    .map(
      (column) =>
        `coalesce(sum(${column}), 0)::bigint as "${column.replace(/_(.)/, (_, letter: string) => letter.toUpperCase())}"`,
    )
    .join(", ");
const ATTEMPTS = sumsOf("attempts", "failed_attempts");
const OF_PERIOD = `${ATTEMPTS}, ${sumsOf("delivered", "failed")}`;

/** SQL for the ids of the webhooks whose rollups are summed for a scope: 0, whose rollups are the total, or those of the app or the customer. */
function counted(scope: Scope): { webhooks: string; bindings: Record<string, unknown> } {
  if (scope === "everything") return { webhooks: "webhook_id = 0", bindings: {} };
  const { sql, bindings } = webhookIn(scope, "w");
  return { webhooks: `webhook_id in (select w.id from webhooks w where ${sql})`, bindings };
}

/** SQL for the number of live webhooks: from the counters of event types; by an index for an app or a customer. */
function liveWebhooks(scope: Scope): string {
  if (scope === "everything")
    return "select coalesce(sum(live + customers_live), 0)::bigint as webhooks from processes";
  return `select count(*) as webhooks from webhooks w where w.deleted is null and ${webhookIn(scope, "w").sql}`;
}

/** SQL for the bottlenecks of live workers. Empty for an app or a customer: they concern the whole service. */
function bottlenecks(scope: Scope): string {
  const isIn = scope === "everything" ? "lease_until > clock_timestamp()" : "false";
  return `array(select distinct bottleneck from workers where bottleneck is not null and ${isIn})`;
}

/** SQL for the deliveries of events with unfinished fan-out. None for an app or a customer: they are not counted by owner. */
function toFanOut(scope: Scope): string {
  return scope === "everything"
    ? `select coalesce(sum(remaining), 0)::bigint as pending,
        (select time_of_id(event_id) from fan_out order by event_id limit 1) as oldest from fan_out`
    : "select 0::bigint as pending, null::timestamptz as oldest";
}

/** The creation of the oldest row of a table in the scope, found by its indexes. @param condition of row `q` */
function oldest(table: "queue" | "retries", scope: Scope, condition = "true"): string {
  const first = (where: string, order: string) =>
    `select q.id from ${table} q where ${where} and ${condition} order by ${order} limit 1`;
  if (scope === "everything") return `(select time_of_id(o.id) from (${first("true", "q.id")}) o)`;
  return `(select min(time_of_id(o.id))
    from webhooks w cross join lateral (${first("q.webhook_id = w.id", "q.webhook_id, q.id")}) o
    where ${webhookIn(scope, "w").sql})`;
}

/** Reads the overview: counts open deliveries, and takes ended ones from the rollups, so that no row of the log is read. */
export async function readOverview(db: Db, scope: Scope): Promise<OverviewRow> {
  const { webhooks, bindings } = counted(scope);
  const own = scope === "everything" ? "true" : webhooks;
  const inScope = webhookIn(scope, "w").sql;
  const [row] = await rows<OverviewRow>(
    db,
    `select queued.pending + unqueued.pending as pending, queued.delivering, retries.retrying, ended.failed,
        ended.cancelled, ended.filtered,
        day.attempts as "attemptsLastDay", day.delivered as "deliveredLastDay", day.failed as "failedLastDay",
        day."failedAttempts" as "failedAttemptsLastDay",
        before.attempts as "attemptsPreviousDay", before.delivered as "deliveredPreviousDay",
        before.failed as "failedPreviousDay", before."failedAttempts" as "failedAttemptsPreviousDay",
        greatest(0, live.webhooks - troubled.degraded - troubled.failing) as "healthyWebhooks",
        troubled.degraded as "degradedWebhooks", troubled.failing as "failingWebhooks",
        ${bottlenecks(scope)} as bottlenecks, least(unqueued.oldest, ${oldest("queue", scope, isFree("q"))}) as "oldestPending",
        ${oldest("retries", scope)} as "oldestRetrying"
      from (
        select count(*) filter (where claimed_by is null or claimed_by <> all(live)) as pending,
          count(*) filter (where claimed_by = any(live)) as delivering
        from queue, (select ${WORKERS} as live) l where ${own}
      ) queued, (${toFanOut(scope)}) unqueued, (
        select count(*) as retrying from retries where ${own}
      ) retries, (
        select ${sumsOf("failed", "cancelled", "filtered")} from (${countsSince("hour", webhooks, "true")}) c
      ) ended, (
        select ${OF_PERIOD} from (${countsSince("minute", webhooks, "start > now() - interval '24 hours'")}) c
      ) day, (
        -- Minutes are not kept as long.
        select ${OF_PERIOD}
        from (${countsSince("hour", webhooks, "start > now() - interval '48 hours' and start <= now() - interval '24 hours'")}) c
      ) before, (${liveWebhooks(scope)}) live, (
        select count(*) filter (where h.health = 'degraded') as degraded,
          count(*) filter (where h.health = 'failing') as failing
        from webhook_health h join webhooks w on w.id = h.webhook_id and w.deleted is null
        where h.health <> 'healthy' and ${inScope}
      ) troubled`,
    bindings,
  );
  return row as OverviewRow;
}

/** Counts deliveries that have failed and those that are retried, of one webhook of the scope or of all. */
export async function countFailing(
  db: Db,
  scope: Scope,
  webhookId?: bigint,
): Promise<{ failed: bigint; retrying: bigint }> {
  const inScope = webhookIn(scope, "w");
  const webhooks =
    webhookId === undefined
      ? counted(scope).webhooks
      : `webhook_id in (select w.id from webhooks w where w.id = :webhookId::bigint and ${inScope.sql})`;
  const own = scope === "everything" && webhookId === undefined ? "true" : webhooks;
  const [found] = await rows<{ failed: bigint; retrying: bigint }>(
    db,
    `select (select coalesce(sum(failed), 0)::bigint from (${countsSince("hour", webhooks, "true")}) c) as failed,
        (select count(*) from retries where ${own}) as retrying`,
    { ...inScope.bindings, webhookId: webhookId ?? null },
  );
  return found ?? { failed: 0n, retrying: 0n };
}

/** The age up to which a history is read by minutes, in milliseconds; a bit less than they are kept. */
const MAX_MINUTES_AGE_MS = (MINUTE_RETENTION_HOURS - 1) * 3_600_000;

/** Counts in one time interval. */
interface HistoryRow extends FieldsOf<HistoryBucket, "start"> {
  start: Date;
}

/** The period from `start` to `end` in the given number of equal intervals, oldest first, including empty ones. */
export function readHistory(
  db: Db,
  scope: Scope,
  buckets: number,
  { start, end }: { start: Date; end: Date },
): Promise<HistoryRow[]> {
  const { webhooks, bindings } = counted(scope);
  const unit = start.getTime() < Date.now() - MAX_MINUTES_AGE_MS ? "hour" : "minute";
  return rows<HistoryRow>(
    db,
    `with done as (
        select width_bucket(extract(epoch from c.start), extract(epoch from :start::timestamptz),
            extract(epoch from :end::timestamptz), :buckets::int) as bucket, c.*
        from (${countsSince(unit, webhooks, "start >= :start::timestamptz and start < :end::timestamptz")}) c
      )
      select :start::timestamptz + (n - 1) * (:end::timestamptz - :start::timestamptz) / :buckets::int as start, ${OF_PERIOD}
      from generate_series(1, :buckets::int) n left join done on done.bucket = n group by n order by n`,
    { buckets, start, end, ...bindings },
  );
}

/**
 * Counts of some webhooks' deliveries in the last 24 hours, rounded to the hour; of those only that had any.
 *
 * @returns the counts by id, and the start of the counted period
 */
export async function webhookStats(
  db: Db,
  webhookIds: readonly bigint[],
): Promise<{ since: Date; webhooks: FieldsOf<WebhookStats>[] }> {
  const since = new Date(Math.floor((Date.now() - DAY_MS) / 3_600_000) * 3_600_000);
  const webhooks = await rows<FieldsOf<WebhookStats>>(
    db,
    `select webhook_id as "webhookId", ${OF_PERIOD},
        coalesce(sum(total_ms)::float8 / nullif(sum(attempts), 0), 0)::float8 as "averageMs",
        greatest(0, max(longest_ms)) as "longestMs"
      from (${countsSince("hour", "webhook_id = any(:webhookIds::bigint[])", "start >= :since::timestamptz")}) c
      group by webhook_id order by webhook_id`,
    { since, webhookIds: webhookIds.map(String) },
  );
  return { since, webhooks };
}

/** Counts of a webhook's deliveries in a period that ends now. */
interface WebhookPeriodRow extends FieldsOf<WebhookPeriod, "latencyP50Ms" | "latencyP95Ms"> {
  /** Attempts by class of `LATENCY_BOUNDS_MS`; those of the last second may be missing. */
  latency: number[];
}

/** The periods of `readWebhookPeriods`, in hours. */
const PERIODS = [1, 24, 168] as const;

/** The last hour, day and week of a webhook, including deleted ones; null if the scope has none with this id. */
export async function readWebhookPeriods(
  db: Db,
  scope: Scope,
  webhookId: bigint,
): Promise<WebhookPeriodRow[] | null> {
  const inScope = webhookIn(scope, "w");
  const known = await count(db, `select from webhooks w where w.id = :webhookId::bigint and ${inScope.sql}`, {
    webhookId,
    ...inScope.bindings,
  });
  if (known === 0) return null;
  return Promise.all(
    PERIODS.map(async (hours) => {
      const unit = hours === 1 ? "minute" : "hour";
      const from = `start > now() - make_interval(hours => :hours::int)`;
      const [row] = await rows<Omit<WebhookPeriodRow, "hours">>(
        db,
        `with counted as materialized (${countsSince(unit, "webhook_id = :webhookId::bigint", from)})
          select ${OF_PERIOD}, ${sumsOf("filtered")}, array(
              select sum(n)::float8 from counted cross join unnest(latency) with ordinality l(n, class) group by class order by class
            ) as latency
          from counted`,
        { webhookId, hours },
      );
      return { hours, ...(row as Omit<WebhookPeriodRow, "hours">) };
    }),
  );
}

/** A webhook's attempts within an interval. */
export interface WebhookIntervalRow
  extends FieldsOf<WebhookInterval, "start" | "latencyP50Ms" | "latencyP95Ms"> {
  webhookId: bigint;
  start: Date;
  /** Attempts by class of `LATENCY_BOUNDS_MS`; those of the last second may be missing. */
  latency: number[];
}

/** The periods of `readWebhookHistory` in hours, with the lengths of their intervals in seconds. */
export const HISTORY_INTERVALS = { 1: 120, 24: 3_600, 168: 21_600 } as const;

/**
 * The attempts of webhooks in the intervals of a period up to now.
 *
 * @returns the interval in which the period begins, the end of the last interval, the webhooks of the scope among those
 *   given, and their intervals with attempts, oldest first
 */
export async function readWebhookHistory(
  db: Db,
  scope: Scope,
  webhookIds: readonly bigint[],
  hours: keyof typeof HISTORY_INTERVALS,
): Promise<{ start: Date; end: Date; webhookIds: Set<bigint>; intervals: WebhookIntervalRow[] }> {
  const intervalMs = HISTORY_INTERVALS[hours] * 1_000;
  const end = new Date((Math.floor(Date.now() / intervalMs) + 1) * intervalMs);
  const start = new Date(end.getTime() - hours * 3_600_000);
  const inScope = webhookIn(scope, "w");
  const own = `webhook_id = any(array(
      select w.id from webhooks w where w.id = any(:webhookIds::bigint[]) and ${inScope.sql}))`;
  const bindings = { webhookIds: webhookIds.map(String), ...inScope.bindings };
  const [known, intervals] = await Promise.all([
    column<bigint>(
      db,
      `select w.id from webhooks w where w.id = any(:webhookIds::bigint[]) and ${inScope.sql}`,
      bindings,
    ),
    rows<WebhookIntervalRow>(
      db,
      `with counted as materialized (
          select c.*, date_bin(make_interval(secs => :seconds::int), c.start, :start::timestamptz) as interval
          from (${countsSince(hours === 1 ? "minute" : "hour", own, "start >= :start::timestamptz")}) c
        )
        select c.webhook_id as "webhookId", c.interval as start, ${ATTEMPTS}, (
            select coalesce(array_agg(l.n order by l.class), '{}') from (
              select class, sum(n)::float8 as n from counted i cross join unnest(i.latency) with ordinality u(n, class)
              where i.webhook_id = c.webhook_id and i.interval = c.interval group by class
            ) l
          ) as latency
        from counted c group by c.webhook_id, c.interval order by c.webhook_id, c.interval`,
      { ...bindings, start, seconds: HISTORY_INTERVALS[hours] },
    ),
  ]);
  return { start, end, webhookIds: new Set(known), intervals };
}

/** A dispatch run. */
export interface RunRow extends FieldsOf<DispatchRun, "started" | "closed" | "url"> {
  started: Date;
  /** Null while the run is open. */
  closed: Date | null;
}

/** The latest runs, newest first. */
export function listRuns(db: Db, limit: number): Promise<RunRow[]> {
  return rows(
    db,
    `select workflow_id as "workflowId", first_run_id as "runId", started, closed, sent as attempts, delivered, failed
      from runs order by id desc limit :limit::int`,
    { limit },
  );
}
