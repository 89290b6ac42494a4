import { plainArray, textArray } from "./array-literal.ts";
import type { ClaimToken } from "./claim-statement.ts";
import type { Db } from "./database.ts";
import { rows } from "./database.ts";

/** Attempts in a round: the first and three retries (contract, section 8). */
export const ATTEMPTS_PER_ROUND = 4;

/** One attempt to be recorded, with the claim under which it was made. */
export interface AttemptResult {
  deliveryId: string;
  token: ClaimToken;
  delivered: boolean;
  started: Date;
  durationMs: number;
  status: number | null;
  error: string | null;
  responseStart: string | null;
  retryAfterMs: number | null;
}

/** What a delivery became by its recorded attempt. */
export type RecordedState = "delivered" | "retrying" | "failed" | "cancelled";

/** How long to wait after a failed attempt: `initialDelayMs` before the first retry, each further `coefficient` times more. */
export interface RetrySpacing {
  initialDelayMs: number;
  coefficient: number;
}

/**
 * Records attempts and moves their deliveries on, in one statement; the fourth failure of a round sets `failed`.
 * A result whose claim was replaced matches nothing. Calling again with the same results changes nothing, so a call
 * whose answer was lost can be repeated.
 *
 * @returns the new state of each delivery that was recorded, by id
 */
export async function recordAttempts(
  db: Db,
  results: readonly AttemptResult[],
  spacing: RetrySpacing,
): Promise<Map<string, RecordedState>> {
  const recorded = await rows<{ state: RecordedState; places: string }>(
    db,
    `with result as (
      select * from unnest(:ids::uuid[], :activities::uuid[], :claimAttempts::int[], :delivered::bool[], :started::int8[],
          :durations::int[], :statuses::smallint[], :errors::text[], :responses::text[], :retryAfter::float8[])
        with ordinality
        as r(id, activity, claim_attempt, delivered, started, duration_ms, status, error, response_start, retry_after, place)
    ),
    moved as (
      update deliveries d set
        attempts = d.attempts + 1,
        claims = 0, claim_activity = null, claim_attempt = null,
        state = case
          when r.delivered then 'delivered'
          when d.state = 'cancelled' then 'cancelled'
          when d.attempts + 1 - d.round_start >= :perRound::int then 'failed'
          else 'retrying' end::delivery_state,
        finished = case
          when r.delivered or d.attempts + 1 - d.round_start >= :perRound::int then now()
          else d.finished end,
        reason = case when r.delivered then null else d.reason end,
        retry_at = case
          when r.delivered or d.state = 'cancelled' or d.attempts + 1 - d.round_start >= :perRound::int then null
          else now() + interval '1 millisecond' * greatest(
            :initialDelay::float8 * power(:coefficient::float8, d.attempts - d.round_start), coalesce(r.retry_after, 0)) end
      from result r
      where d.id = r.id and d.claim_activity = r.activity and d.claim_attempt = r.claim_attempt
        and d.state in ('delivering', 'retrying', 'cancelled')
      returning d.id, d.attempts, d.state, r.place, r.started, r.duration_ms, r.status, r.error, r.response_start
    ),
    logged as (
      insert into attempts (delivery_id, number, started, duration_ms, status, error, response_start)
      select id, attempts, to_timestamp(started / 1000.0::float8), duration_ms, status, error, response_start from moved
    )
    select state, string_agg(place::text, ',') as places from moved group by state`,
    {
      ids: plainArray(results.map((r) => r.deliveryId)),
      activities: plainArray(results.map((r) => r.token.activity)),
      claimAttempts: plainArray(results.map((r) => r.token.attempt)),
      delivered: plainArray(results.map((r) => r.delivered)),
      started: plainArray(results.map((r) => r.started.getTime())),
      durations: plainArray(results.map((r) => r.durationMs)),
      statuses: plainArray(results.map((r) => r.status)),
      errors: textArray(results.map((r) => r.error)),
      responses: textArray(results.map((r) => r.responseStart)),
      retryAfter: plainArray(results.map((r) => r.retryAfterMs)),
      perRound: ATTEMPTS_PER_ROUND,
      initialDelay: spacing.initialDelayMs,
      coefficient: spacing.coefficient,
    },
    { prepare: "record_attempts" },
  );
  const states = new Map<string, RecordedState>();
  for (const { state, places } of recorded) {
    for (const place of places.split(","))
      states.set((results[Number(place) - 1] as AttemptResult).deliveryId, state);
  }
  return states;
}
