import { count, type Db } from "../lib/pg/index.ts";
import type { Job } from "../lib/process/index.ts";
import { FIRST_CHECK_S } from "./track.ts";

/** The maximum number of webhooks whose deliveries are counted per step. */
const COUNT_STEP = 100;
/** The maximum number of deliveries of a webhook that are counted. */
const MAX_COUNTED = 100_000;
/** The time for which the deliveries of a webhook are counted after its incident, in days. */
const COUNTED_FOR_DAYS = 7;

const open = (table: "queue" | "retries") =>
  `exists (
    select from ${table} t where t.webhook_id = m.webhook_id and t.id >= m.first_delivery and t.id < m.last_delivery)`;

/**
 * Counts, of webhooks that have left an incident, which of the deliveries that were open in the meantime have been delivered since and which
 * have failed. Counts again, each time after as much time as has passed since then, while some are open or could still be sent again. Any
 * number of processes may do so at once.
 *
 * @returns the number of webhooks counted
 */
export function countRecovered(db: Db): Promise<number> {
  return count(
    db,
    `with due as materialized (
        select * from incident_webhooks where check_at < now() order by check_at limit ${COUNT_STEP} for update skip locked
      ),
      counted as (
        select m.shown_id, m.webhook_id, d.failed, d.delivered, d.failed > 0 or ${open("queue")} or ${open("retries")} as may_change
        from due m cross join lateral (
          select (count(*) filter (where outcome = 'failed'))::int as failed, (count(*) filter (where outcome = 'delivered'))::int as delivered
          from (
            select outcome from deliveries d
            where d.webhook_id = m.webhook_id and d.id >= m.first_delivery and d.id < m.last_delivery and d.finished >= m.since
            limit ${MAX_COUNTED}
          ) d
        ) d
      )
      update incident_webhooks m set failed = c.failed, recovered = c.delivered,
        check_at = case when c.may_change and m.ended > now() - interval '${COUNTED_FOR_DAYS} days'
          then now() + greatest(now() - m.ended, interval '${FIRST_CHECK_S} seconds') end
      from counted c where (m.shown_id, m.webhook_id) = (c.shown_id, c.webhook_id)`,
  );
}

/** Deletes incidents that ended before the retention, each with its webhooks. @returns the number of incidents deleted */
export function deleteOldIncidents(db: Db, retentionDays: number, most = 100): Promise<number> {
  return count(
    db,
    `with old as materialized (
        select id from incidents where closed < now() - make_interval(days => :days::int) order by closed limit :most::int
      ),
      members as (delete from incident_webhooks where incident_id in (select id from old))
      delete from incidents where id in (select id from old)`,
    { days: retentionDays, most },
  );
}

/** Counts what was recovered. */
export const COUNT_RECOVERED_JOB: Job<{ db: Db }> = {
  name: "count recovered deliveries",
  everyS: 5,
  most: COUNT_STEP,
  run: ({ db }) => countRecovered(db),
};
