import { column, count, type Db, rows } from "../lib/pg/index.ts";
import { CHANGE } from "../queue/index.ts";
import { NIL_ID, type Partition } from "../schema/index.ts";

/** The number of hours for which minute rollups are kept. Hour rollups are kept as long as deliveries. */
export const MINUTE_RETENTION_HOURS = 26;
/**
 * Upper bounds of the latency classes, in milliseconds, from 2 to 65,536, each about 1.4 times the previous one.
 * Slower attempts are in an additional class. Must never change, because stored counts use these classes.
 */
export const LATENCY_BOUNDS_MS: readonly number[] = Array.from({ length: 31 }, (_, n) =>
  Math.round(2 ** ((n + 2) / 2)),
);

/**
 * A percentile of the latency, in milliseconds, as the upper bound of its class; null without attempts. For the last
 * class, which has no upper bound, returns its lower bound.
 *
 * @param part the percentile as a fraction, from 0 to 1
 */
export function percentileMs(latency: readonly number[], part: number): number | null {
  const all = latency.reduce((sum, n) => sum + n, 0);
  if (all === 0) return null;
  let seen = 0;
  const place = latency.findIndex((n) => {
    seen += n;
    return seen >= part * all;
  });
  return LATENCY_BOUNDS_MS[Math.min(place, LATENCY_BOUNDS_MS.length - 1)] as number;
}

/** Sums of a set of changes, counted by `n`; `each` names the columns to group by, `more` further sums. */
const sums = (each: string, source: string, more = "") => `
  select ${each}, coalesce(sum(n) filter (where longest_ms >= 0), 0)::int as attempts,
    coalesce(sum(n) filter (where longest_ms >= 0 and change <> ${CHANGE.delivered}), 0)::int as failed_attempts, ${outcomes},
    coalesce(sum(total_ms) filter (where longest_ms >= 0), 0)::bigint as total_ms, max(longest_ms) as longest_ms${more}
  from (${source}) change group by ${each}`;

const outcomes = (["delivered", "failed", "cancelled", "filtered"] as const)
  .map(
    (name) =>
      `sum(case change when ${CHANGE[name]} then n when ${-CHANGE[name]} then -n else 0 end)::int as ${name}`,
  )
  .join(", ");

/**
 * SQL for the failed attempts of a row of the rollups, also for modules that read such rows with others. Version 0.2.0 did not count
 * them: attempts that did not deliver, then, which is the same unless deliveries were sent again.
 *
 * @param row the table's name in the query
 */
export const failedAttempts = (row: string) =>
  `coalesce(${row}.failed_attempts, greatest(0, ${row}.attempts - ${row}.delivered))`;

/** An SQL array with an element for each latency class. */
const byClass = (element: (nth: number) => string) =>
  `array[${[0, ...LATENCY_BOUNDS_MS].map((_, index) => element(index + 1)).join(", ")}]`;

/**
 * Adds what a step of folding found to a rollup table. Names the classes one by one: a query for the array of each row would take
 * most of the time where each webhook has few attempts.
 */
export const foldInto = (unit: "minute" | "hour") => `
  ${unit}_folded as (
    insert into rollup_${unit}s as r
      (webhook_id, start, attempts, failed_attempts, delivered, failed, cancelled, filtered, total_ms, longest_ms,
        latency)
    select webhook_id, start, attempts, failed_attempts, delivered, failed, cancelled, filtered, total_ms,
      greatest(0, longest_ms), latency
    from (${sums(
      "webhook_id, start",
      `select webhook_id, date_trunc('${unit}', minute) as start, change, class, n, total_ms, longest_ms from each_change`,
      `, ${byClass((nth) => `coalesce(sum(n) filter (where class = ${nth}), 0)::int`)} as latency`,
    )}) s order by webhook_id, start
    on conflict (webhook_id, start) do update set
      attempts = r.attempts + excluded.attempts,
      failed_attempts = ${failedAttempts("r")} + excluded.failed_attempts, delivered = r.delivered + excluded.delivered,
      failed = r.failed + excluded.failed, cancelled = r.cancelled + excluded.cancelled,
      filtered = r.filtered + excluded.filtered,
      total_ms = r.total_ms + excluded.total_ms, longest_ms = greatest(r.longest_ms, excluded.longest_ms),
      latency = ${byClass((nth) => `r.latency[${nth}] + excluded.latency[${nth}]`)}
  )`;

/** Deletes minute rollups after MINUTE_RETENTION_HOURS and hour rollups from before `before`. */
export async function deleteOldRollups(db: Db, before: Date): Promise<number> {
  const minutes = await count(
    db,
    "delete from rollup_minutes where start < now() - make_interval(hours => :hours::int)",
    { hours: MINUTE_RETENTION_HOURS },
  );
  return minutes + (await count(db, "delete from rollup_hours where start < :before", { before }));
}

/** Final states of which the overview counts every delivery. */
const TAKEN_OUT = ["failed", "cancelled", "filtered"] as const;
/** The maximum number of deliveries that one statement of `takeOut` reads. */
const TAKE_OUT_STEP = 10_000;

/**
 * Takes the deliveries of a partition of the log out of the hour rollups before its drop, if they ended after its time, such as
 * expired ones. The others go with their hours (`deleteOldRollups`). May be called again for the same partition.
 *
 * @param stop ends the work early; the next call continues
 */
export async function takeOut(db: Db, { name, to }: Partition, stop?: AbortSignal): Promise<void> {
  for (const outcome of TAKEN_OUT) {
    const counted = `select from rollup_hours where webhook_id = 0 and start >= :to::timestamptz and ${outcome} > 0 limit 1`;
    if ((await rows(db, counted, { to })).length === 0) continue;
    // Filtered deliveries have no index: all deliveries are read.
    const some = outcome === "filtered" ? "true" : `outcome = '${outcome}'`;
    const setting = `rollups_without_${outcome}`;
    const [stored] = await column<string>(db, "select value from settings where name = :setting", {
      setting,
    });
    const [partition, id] = stored?.split(" ") ?? [];
    // Empty once all are out.
    let after = partition === name ? id : NIL_ID;
    while (after && !stop?.aborted) {
      const [last]: (string | null)[] = await column(
        db,
        `with step as materialized (
            select id, webhook_id, finished, outcome from ${name} where ${some} and id > :after::uuid
            order by id limit ${TAKE_OUT_STEP}
          ),
          late as (
            select webhook_id, date_trunc('hour', finished) as start, count(*)::int as n from step
            where outcome = '${outcome}' and finished >= :to::timestamptz group by 1, 2
          ),
          taken_out as (
            update rollup_hours r set ${outcome} = greatest(0, r.${outcome} - l.n)
            from (select * from late union all select 0, start, sum(n)::int from late group by 2) l
            where r.webhook_id = l.webhook_id and r.start = l.start
          ),
          continued as (
            insert into settings (name, value) select :setting, '${name} ' || coalesce(max(id::text), '') from step
            on conflict (name) do update set value = excluded.value
          )
          select max(id::text) as last from step`,
        { setting, after, to },
      );
      after = last ?? undefined;
    }
  }
}

/**
 * A query of `webhook_id`, `start` and counts from the rollups of a unit and from unfolded deltas.
 *
 * @param webhooks a condition on the column `webhook_id`
 * @param from a condition on the column `start`
 */
export function countsSince(unit: "minute" | "hour", webhooks: string, from: string): string {
  const unfolded = `select webhook_id, date_trunc('${unit}', minute) as start, change, 1 as n, duration_ms as total_ms,
      duration_ms as longest_ms from (${UNFOLDED}) c`;
  return `
    select webhook_id, start, attempts, ${failedAttempts("r")} as failed_attempts, delivered, failed, cancelled, filtered,
      total_ms, longest_ms, latency
    from rollup_${unit}s r where ${webhooks} and ${from}
    union all
    select *, null::int[] from (${sums("webhook_id, start", unfolded)}) unfolded where ${webhooks} and ${from}`;
}

/** Unfolded changes per webhook, and for webhook 0, which is the total. */
const UNFOLDED = `
  select c.webhook_id, d.minute, c.change, c.duration_ms
  from rollup_deltas d cross join lateral unnest(webhook_ids, changes, durations_ms) as c(webhook_id, change, duration_ms)
  union all
  select 0, d.minute, c.change, c.duration_ms
  from rollup_deltas d cross join lateral unnest(changes, durations_ms) as c(change, duration_ms)`;
