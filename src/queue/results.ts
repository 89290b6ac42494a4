import { type Db, plainArray, rows, textArray } from "../lib/pg/index.ts";
import { timeOfId, withPartitions } from "../schema/index.ts";
import type { ClaimToken } from "./claims.ts";
import type { WebhookWish } from "./holds.ts";
import { CHANGE, deltaOf } from "./rollup-deltas.ts";

/** The number of attempts per round: the first and three retries (contract, section 8). */
export const ATTEMPTS_PER_ROUND = 4;

/** What is recorded of the outcome of one POST. */
export interface AttemptOutcome {
  /** True for any 2xx within the timeout, even if the body is incomplete. */
  delivered: boolean;
  started: Date;
  durationMs: number;
  /** The HTTP status; null without a response. */
  status: number | null;
  /** The error if there was no response, or an explanation of the status; null if neither. Never contains a URL or a secret. */
  error: string | null;
  /** The first 1 KiB of the response body, as text. */
  responseStart: string | null;
  /** The response headers that fit into 2 KiB, unless delivered: a JSON array of names and values, alternating. */
  responseHeaders: string | null;
  /** The durations of its parts, unless delivered, as column `attempts.timing` has them; left out or null if it opened no connection. */
  timing?: string | null;
  /** The delay requested by the receiver's Retry-After, in milliseconds; at most an hour. */
  retryAfterMs: number | null;
}

/** The result of one attempt and the claim under which it was made. */
export interface AttemptResult extends AttemptOutcome {
  deliveryId: string;
  webhookId: bigint;
  token: ClaimToken;
  /** The run that made a first attempt. Defaults to the run that claimed the delivery. */
  runId?: number;
  /** The header `webhook-signature` of a failed attempt; null if the attempt sent nothing or succeeded. */
  signature: string | null;
  /** What the receiver asks for, which `heedWishes` stores; left out for nothing. */
  wish?: WebhookWish | undefined;
}

/** The state of a delivery after a recorded attempt. */
export type RecordedState = "delivered" | "retrying" | "failed" | "cancelled";

/** The delays of retries of webhooks without their own, and the interval of runs. */
export interface RetrySpacing {
  /** The delay before the first retry of a round, in milliseconds. */
  retryInitialDelayMs: number;
  /** The factor by which the delay grows with each further retry. */
  retryBackoffCoefficient: number;
  intervalMs: number;
}

/**
 * SQL for the longest delay of a retry that stays in its run, in milliseconds: an hour, or 60 intervals if that is longer. A later one has no
 * run while it waits, so that neither a run, nor a lease, nor a timer waits with it. The run that starts before it is due adopts it.
 */
const MAX_DELAY_IN_RUN_MS = "greatest(3600000, 60 * :intervalMs::float8)";

/**
 * Records attempts and moves their deliveries in one statement: ended ones to the log, with the attempt that ended them; others to
 * `retries`. A delivery fails with the fourth failure of a round. If its webhook is deleted, any failure cancels the delivery.
 *
 * A result is recorded only while the claim is valid and no other result of the attempt is recorded. The operation is idempotent, so a
 * call whose response was lost can be repeated.
 *
 * @param isRepeated whether this is the second and last call, for retries that the first call missed
 * @returns the new state of each recorded delivery, by id
 */
export async function recordAttempts(
  db: Db,
  results: readonly AttemptResult[],
  spacing: RetrySpacing,
  isRepeated = false,
): Promise<Map<string, RecordedState>> {
  const bindings = {
    ids: plainArray(results.map((r) => r.deliveryId)),
    webhookIds: plainArray(results.map((r) => r.webhookId)),
    workers: plainArray(results.map((r) => r.token.workerId)),
    attempts: plainArray(results.map((r) => r.token.attempts)),
    retries: plainArray(results.map((r) => r.token.table === "retries")),
    runs: plainArray(results.map((r) => r.runId ?? null)),
    delivered: plainArray(results.map((r) => r.delivered)),
    started: plainArray(results.map((r) => r.started.getTime())),
    durations: plainArray(results.map((r) => r.durationMs)),
    statuses: plainArray(results.map((r) => r.status)),
    errors: textArray(results.map((r) => r.error)),
    responses: textArray(results.map((r) => r.responseStart)),
    signatures: textArray(results.map((r) => r.signature)),
    responseHeaders: textArray(results.map((r) => r.responseHeaders)),
    timings: textArray(results.map((r) => r.timing ?? null)),
    retryAfter: plainArray(results.map((r) => r.retryAfterMs)),
    ...spacing,
  };
  const recorded = await withPartitions(
    db,
    () => rows<{ state: RecordedState; ids: string }>(db, RECORD, bindings, { prepare: "record" }),
    () => results.map(({ deliveryId }) => timeOfId(deliveryId)),
  );
  const states = new Map<string, RecordedState>();
  for (const { state, ids } of recorded) for (const id of ids.split(",")) states.set(id, state);
  // The statement misses a retry that `leavePaused` or `settleGroups` changes concurrently. A second one finds it.
  const missed = results.filter((each) => each.token.table === "retries" && !states.has(each.deliveryId));
  if (missed.length === 0 || isRepeated) return states;
  return new Map([...states, ...(await recordAttempts(db, missed, spacing, true))]);
}

/**
 * SQL for whether row `t` of `queue` or `retries` is that of result `r`, and the claim is valid. Compares the webhook id too, so that
 * the index on `(webhook_id, id)` finds the row as well as the primary key does.
 */
const IS_OF_RESULT = `
  t.id = r.id and t.webhook_id = r.webhook_id and t.claimed_by = r.worker_id and t.attempts = r.attempts`;

/**
 * SQL that deletes the rows of `found` by ctid: a join may scan the whole table while its statistics show few rows. Compares the worker
 * again, because older versions of PostgreSQL follow the ctid to the new version of a row that was changed concurrently. Newer versions
 * leave the row out.
 */
const goneFrom = (table: "queue" | "retries") => `
  ${table}_gone as (
    delete from ${table} where claimed_by = any(:workers::int[])
      and ctid = any(array(select place_on_disk from found where is_retry = ${table === "retries"}))
    returning id
  )`;

/** The columns that the tables of attempts and of ended deliveries share. */
const ATTEMPT = "status, duration_ms, started, error, response_start, signature, response_headers, timing";

/**
 * The statement of `recordAttempts`. Looks up each row by id: those of first attempts only in `queue`, others only in `retries`. In
 * `moved`, `is true` makes the test for deleted rows a lookup in a hash table instead of a join.
 */
const RECORD = `
  with result as materialized (
    select * from unnest(:ids::uuid[], :webhookIds::bigint[], :workers::int[], :attempts::smallint[], :retries::bool[], :runs::int[], :delivered::bool[],
        :started::int8[], :durations::int[], :statuses::smallint[], :errors::text[], :responses::text[],
        :signatures::text[], :responseHeaders::text[], :timings::text[], :retryAfter::float8[])
      as r(id, webhook_id, worker_id, attempts, is_retry, made_by, delivered, started_ms, duration_ms, status, error, response_start, signature,
        response_headers, timing, retry_after)
  ),
  found as materialized (
    select r.*, t.* from result r cross join lateral (
      select t.ctid as place_on_disk, t.event_id, coalesce(r.made_by, t.run_id) as run_id, t.attempts as round_start
      from queue t where not r.is_retry and ${IS_OF_RESULT}
      union all
      select t.ctid, t.event_id, t.run_id, t.round_start from retries t where r.is_retry and ${IS_OF_RESULT}
      limit 1
    ) t
  ),
  ${goneFrom("queue")},
  ${goneFrom("retries")},
  moved as materialized (
    select f.*, f.attempts + 1 as number, to_timestamp(f.started_ms / 1000.0::float8) as started,
      case when f.delivered then 'delivered'
        when (select w.deleted is not null from webhooks w where w.id = f.webhook_id) then 'cancelled'
        when f.attempts + 1 - f.round_start >= ${ATTEMPTS_PER_ROUND} then 'failed'
        else 'retrying' end as state
    from found f where (f.id in (select id from queue_gone union all select id from retries_gone)) is true
  ),
  logged as (
    insert into deliveries (id, event_id, webhook_id, run_id, outcome, attempts, round_start, finished, reason, ${ATTEMPT})
    select id, event_id, webhook_id, run_id, state::outcome, number, round_start, now(),
      case when state = 'cancelled' then 'webhook deleted' end, ${ATTEMPT}
    from moved where state <> 'retrying' order by id
  ),
  waiting as (
    insert into retries (id, event_id, webhook_id, run_id, attempts, round_start, due)
    select id, event_id, webhook_id, case when delay_ms <= ${MAX_DELAY_IN_RUN_MS} then run_id end, number, round_start,
      now() + interval '1 millisecond' * delay_ms
    from moved m cross join lateral (
      select greatest(coalesce(
          -- The webhook's own delay, up to a tenth longer: what failed together is not due together.
          (select (array[w.first_retry_seconds, w.second_retry_seconds, w.third_retry_seconds])[m.attempts - m.round_start + 1]
              * 1000 * (1 + random() / 10) from webhooks w where w.id = m.webhook_id),
          :retryInitialDelayMs::float8 * power(:retryBackoffCoefficient::float8, m.attempts - m.round_start)
        ), coalesce(m.retry_after, 0)) as delay_ms offset 0
    ) d
    where state = 'retrying'
  ),
  tried as (
    insert into attempts (delivery_id, number, ${ATTEMPT})
    select id, number, ${ATTEMPT} from moved where state = 'retrying'
  ),
  ${deltaOf(`select id, webhook_id, duration_ms, case state when 'delivered' then ${CHANGE.delivered}
    when 'failed' then ${CHANGE.failed} when 'cancelled' then ${CHANGE.cancelled} else ${CHANGE.retrying} end::smallint as change
    from moved`)}
  select state, string_agg(id::text, ',') as ids from moved group by state`;
