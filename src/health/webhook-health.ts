import { count, type Db, rows } from "../lib/pg/index.ts";
import type { Job } from "../lib/process/index.ts";
import { CHANGE, ofWebhook } from "../queue/index.ts";
import { failedAttempts } from "../stats/index.ts";
import type { Health } from "../webhooks/index.ts";

/** Failing: the latest attempt failed, and no attempt has succeeded within this time before it, in seconds. */
const FAILING_AFTER_S = 30;
/** Degraded: at least this share of the attempts of `DEGRADED_WITHIN_MIN` failed, from 0 to 1. */
const DEGRADED_SHARE = 0.1;
/** The period whose attempts decide whether a webhook is degraded, in minutes. */
const DEGRADED_WITHIN_MIN = 5;
/**
 * A failing webhook without attempts and without retries is healthy again after this time, in minutes: nothing is known
 * about its endpoint any more.
 */
const FORGOTTEN_AFTER_MIN = 60;
/** The maximum age of a webhook's last error, in seconds. A failing webhook does not read it with every attempt. */
const ERROR_FRESH_S = 10;
/** Waiting deliveries of a webhook whose last attempts are compared to find its latest error. */
const ERRORS_COMPARED = 4;

/** The health of a webhook that was judged. */
export interface HealthChange {
  webhookId: bigint;
  /** The normalised URL that requests go to. */
  targetUrl: string;
  /** Null for none. */
  name: string | null;
  /** The name of its installed app; null for none. */
  application: string | null;
  /** The user_id of its customer; null for none. */
  customer: string | null;
  was: Health;
  health: Health;
  /** The start of the current health. */
  since: Date;
  /** The start of the previous health. */
  wasSince: Date;
  /** Its latest error: `HTTP status 503`, with a text after a colon if there is one, or the text alone. */
  lastError: string | null;
}

const recent = (row: string) =>
  `${row}.start > date_trunc('minute', now()) - interval '${DEGRADED_WITHIN_MIN} minutes'`;

/**
 * A part of the statement that folds: keeps in `webhook_health` when the attempts of `sum_of_each` failed and succeeded.
 * A webhook gets a row with its first failure, so that webhooks that answer well cost no write. Whether the failures or
 * the successes of one step came last is not known; it counts as a success.
 */
export const NOTE_ATTEMPTS = `
  tried as (
    select webhook_id, bool_or(change = ${CHANGE.delivered}) as succeeded, bool_or(change <> ${CHANGE.delivered}) as failed,
      (sum(n) filter (where change <> ${CHANGE.delivered}))::int as failures
    from sum_of_each
    where class > 0 and minute > now() - interval '${DEGRADED_WITHIN_MIN} minutes' group by webhook_id
  ),
  noted as (
    insert into webhook_health as h (webhook_id, first_failure, last_failure, last_success)
    select t.webhook_id, case when not t.succeeded then now() end,
      case when t.failed then now() else '-infinity' end, case when t.succeeded then now() else (
        select least(now(), m.start + interval '1 minute') from rollup_minutes m
        where m.webhook_id = t.webhook_id and ${recent("m")}
          and m.attempts > ${failedAttempts("m")}
        order by m.start desc limit 1
      ) end
    from tried t
    where t.failed or exists (select from webhook_health k where k.webhook_id = t.webhook_id)
    order by t.webhook_id
    on conflict (webhook_id) do update set
      first_failure = case when excluded.first_failure is not null then coalesce(h.first_failure, now()) end,
      last_failure = greatest(h.last_failure, excluded.last_failure),
      last_success = case when excluded.first_failure is null then now() else h.last_success end
    returning webhook_id
  )`;

/**
 * The latest error of webhook `h`: of its newest deliveries that wait for a retry, and of the newest that failed for good.
 * Each is found by an index that begins with the webhook.
 */
const LATEST_ERROR = `
  select nullif(concat_ws(': ', 'HTTP status ' || status, error), '') as error from (
    (select a.started, a.error, a.status
      from (
        select id, attempts from retries t where ${ofWebhook("t", "h.webhook_id")}
        order by webhook_id desc, id desc limit ${ERRORS_COMPARED}
      ) r cross join lateral (
        select started, error, status from attempts where delivery_id = r.id and number = r.attempts limit 1
      ) a)
    union all
    (select started, error, status from deliveries
      where webhook_id = h.webhook_id and outcome = 'failed' and started is not null order by id desc limit 1)
  ) latest order by started desc limit 1`;

const JUDGE = `
  with judged as materialized (
    select h.webhook_id, h.health as was, h.since as was_since, j.health, e.error, w.target_url, w.name, w.customer,
      (select a.name from installed_apps a where a.id = w.installed_app_id) as application
    from unnest(:webhookIds::bigint[]) n(webhook_id)
      cross join lateral (select * from webhook_health k where k.webhook_id = n.webhook_id offset 0) h
      join webhooks w on w.id = n.webhook_id and w.deleted is null
      cross join lateral (
        select coalesce(sum(m.attempts), 0) as attempts,
          coalesce(sum(${failedAttempts("m")}), 0) as failed
        from rollup_minutes m where m.webhook_id = h.webhook_id and ${recent("m")}
      ) m
      cross join lateral (
        select case
          when h.first_failure is not null and (h.last_success is null
            or h.last_failure >= h.last_success + interval '${FAILING_AFTER_S} seconds') then 'failing'
          when m.failed > 0 and m.failed >= ${DEGRADED_SHARE} * m.attempts then 'degraded'
          else 'healthy' end as health
      ) j
      left join lateral (${LATEST_ERROR}) e
        on h.error_read is null or h.error_read < now() - interval '${ERROR_FRESH_S} seconds' or j.health <> h.health
  )
  update webhook_health h set health = j.health,
    since = case when j.health = h.health then h.since when j.health = 'failing' then h.first_failure else now() end,
    last_error = coalesce(j.error, h.last_error),
    error_read = case when j.error is null then h.error_read else now() end
  from judged j
  where h.webhook_id = j.webhook_id and (j.health <> h.health or j.error is not null)
  returning h.webhook_id as "webhookId", j.target_url as "targetUrl", j.name, j.application, j.customer,
    h.last_error as "lastError", j.was, h.health, h.since, j.was_since as "wasSince"`;

/** Judges the health of webhooks that have a row in `webhook_health`. Returns those whose health or latest error was stored. */
export function judgeHealth(trx: Db, webhookIds: readonly bigint[]): Promise<HealthChange[]> {
  return rows<HealthChange>(trx, JUDGE, { webhookIds: webhookIds.map(String) });
}

/**
 * Forgets webhooks that have had no failed attempt for `DEGRADED_WITHIN_MIN`, those that were failing excepted: they stay
 * so until an attempt succeeds, or until nothing was tried for `FORGOTTEN_AFTER_MIN` and no retry waits. Any number of
 * processes may do so at once.
 *
 * @returns how many were forgotten
 */
export function forgetHealthy(db: Db): Promise<number> {
  return count(
    db,
    `delete from webhook_health h where case when h.health = 'failing'
        then h.last_failure < now() - interval '${FORGOTTEN_AFTER_MIN} minutes'
          and (select r.webhook_id from retries r where r.webhook_id >= h.webhook_id order by r.webhook_id limit 1)
            is distinct from h.webhook_id
        else h.last_failure < now() - interval '${DEGRADED_WITHIN_MIN} minutes' end
      or exists (select from webhooks w where w.id = h.webhook_id and w.deleted is not null)`,
  );
}

/** Forgets webhooks that have become healthy. */
export const HEALTH_JOB: Job<{ db: Db }> = {
  name: "forget healthy webhooks",
  everyS: 15,
  run: ({ db }) => forgetHealthy(db),
};
