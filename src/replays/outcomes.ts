import { count, type Db, rows } from "../lib/pg/index.ts";
import type { Job } from "../lib/process/index.ts";

/** The maximum number of steps whose deliveries are looked up at once: each has up to 500. */
const MAX_STEPS = 20;
/** The interval between looks at the open deliveries of a step, in seconds. It grows with the age of the step. */
const LOOK_S = { min: 2, max: 60 };

/** Stores which deliveries a step of a replay has queued, so that their outcomes are counted. Requires the step's transaction. */
export async function noteQueued(trx: Db, replayId: string, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await rows(
    trx,
    `insert into replay_steps (replay_id, open, check_at)
      values (:replayId::uuid, :ids::uuid[], now() + make_interval(secs => ${LOOK_S.min}))`,
    { replayId, ids: ids as string[] },
  );
}

/**
 * Counts the outcomes of deliveries that replays have queued, each once: when it has ended for the first time since. Any number of processes
 * may do so at once.
 *
 * @returns the number of steps looked at
 */
export function countOutcomes(db: Db): Promise<number> {
  return count(
    db,
    `with due as materialized (
        select id, open from replay_steps where check_at < now() order by check_at limit ${MAX_STEPS} for update skip locked
      ),
      outcome as materialized (
        -- Looked up delivery by delivery: of a join, the planner expects few rows, and may read whole tables.
        select s.id as step, o.id, coalesce((select d.outcome::text from deliveries d where d.id = o.id limit 1), (
            select 'open' where exists (select from queue q where q.id = o.id) or exists (select from retries r where r.id = o.id)
          )) as outcome
        from due s cross join lateral unnest(s.open) as o(id)
      ),
      counted as (
        select step, coalesce(array_agg(id) filter (where outcome = 'open'), '{}') as open,
          count(*) filter (where outcome = 'delivered') as delivered, count(*) filter (where outcome = 'failed') as failed
        from outcome group by 1
      )
      update replay_steps s set open = c.open, delivered = s.delivered + c.delivered, failed = s.failed + c.failed,
        check_at = case when c.open <> '{}' then now() + make_interval(secs =>
          greatest(${LOOK_S.min}, least(${LOOK_S.max}, extract(epoch from now() - s.queued) / 4))) end
      from counted c where s.id = c.step`,
  );
}

/** Counts what became of replayed deliveries. */
export const OUTCOMES_JOB: Job<{ db: Db }> = {
  name: "count outcomes of replays",
  everyS: LOOK_S.min,
  most: MAX_STEPS,
  run: ({ db }) => countOutcomes(db),
};
