import type { Logger } from "pino";
import { NOTE_FOR_BREAKERS } from "../breakers/index.ts";
import { present } from "../contract/present.ts";
import { type HealthChange, judgeHealth, NOTE_ATTEMPTS } from "../health/index.ts";
import { leaveForgotten, trackCertificates, trackIncidents } from "../incidents/index.ts";
import { type Db, rows } from "../lib/pg/index.ts";
import type { Job } from "../lib/process/index.ts";
import { noticeFailed, noticeHealth, noticeIncidents } from "../notices/index.ts";
import { ADVISORY_LOCKS, takeLock, withPartitions } from "../schema/index.ts";
import { foldInto, LATENCY_BOUNDS_MS } from "../stats/index.ts";
import { inLog } from "../webhooks/index.ts";

/** The maximum number of rows of `rollup_deltas` folded in one step. */
const FOLD_STEP = 500;

/**
 * One statement of queries of several modules: what it takes out becomes thousands of sums, which it would otherwise send to this process
 * and receive again for each of them.
 */
const FOLD = `
  with taken as (
    delete from rollup_deltas where id = any(array(select id from rollup_deltas order by id limit :step::int))
    returning minute, webhook_ids, changes, durations_ms, failed_ids
  ),
  -- Thousands of changes become few sums at once; class 0 stands for no attempt.
  sum_of_each as materialized (
    select webhook_id, minute, change,
      case when duration_ms >= 0 then 1 + width_bucket(duration_ms, :bounds::int[]) else 0 end as class,
      count(*)::int as n, sum(duration_ms) as total_ms, max(duration_ms) as longest_ms
    from taken cross join lateral unnest(webhook_ids, changes, durations_ms) as c(webhook_id, change, duration_ms)
    group by 1, 2, 3, 4
  ),
  each_change as materialized (
    select * from sum_of_each
    union all
    select 0, minute, change, class, sum(n)::int, sum(total_ms), max(longest_ms) from sum_of_each group by 2, 3, 4
  ),
  ${foldInto("minute")}, ${foldInto("hour")}, ${NOTE_ATTEMPTS}, ${NOTE_FOR_BREAKERS}
  select (select count(*)::int from taken) as n, array(select webhook_id from noted) as noted,
    array(select unnest(failed_ids) from taken) as failed`;

/**
 * Adds unfolded deltas to the rollups, a step at a time, so that a reader finds few of them. Only one process folds at a
 * time; another one's call does nothing. The same transaction judges the health of the webhooks concerned, brings incidents up to date,
 * and publishes notices of what changed.
 *
 * @param onHealth told of the webhooks whose health has changed, once that is stored
 * @returns how many rows of `rollup_deltas` were folded; 0 when none is left
 */
export async function foldDeltas(
  db: Db,
  onHealth: (changes: readonly HealthChange[]) => void = () => {},
): Promise<number> {
  let changes: HealthChange[] = [];
  const fold = async (trx: Db) => {
    changes = [];
    if (!(await takeFoldLock(trx))) return 0;
    const [step] = await rows<{ n: number; noted: bigint[]; failed: string[] }>(trx, FOLD, {
      step: FOLD_STEP,
      bounds: LATENCY_BOUNDS_MS,
    });
    if (!step) return 0;
    const judged = step.noted.length > 0 ? await judgeHealth(trx, step.noted) : [];
    changes = judged.filter(({ was, health }) => was !== health);
    const incidents = await trackIncidents(trx, judged);
    await noticeHealth(trx, changes);
    await noticeIncidents(trx, incidents);
    await noticeFailed(trx, step.failed);
    return step.n;
  };
  // A notice may need a partition.
  const folded = await withPartitions(db, () => db.transaction(fold));
  if (changes.length > 0) onHealth(changes);
  return folded;
}

/** Whether this transaction is the only one that folds, until it ends. */
async function takeFoldLock(trx: Db): Promise<boolean> {
  const [taken] = await rows<{ got: boolean }>(
    trx,
    "select pg_try_advisory_xact_lock(:lock::bigint) as got",
    { lock: ADVISORY_LOCKS.fold },
  );
  return taken?.got === true;
}

/** Folds statistics; logs which webhooks began to fail or have recovered. */
export const FOLD_JOB: Job<{ db: Db; log: Logger }> = {
  name: "fold statistics",
  most: FOLD_STEP,
  run: ({ db, log }) =>
    // The process that stored a change logs it, so that of all processes one does.
    foldDeltas(db, (changes) => {
      for (const change of changes) {
        const { was, health, since, name, application, customer, lastError: error } = change;
        if ((was === "failing") === (health === "failing")) continue;
        const about = { ...inLog(change), ...present({ name, application, customer }) };
        if (health === "failing") log.warn({ ...about, since, ...present({ error }) }, "webhook is failing");
        else log.info({ ...about, health }, "webhook has recovered");
      }
    }),
};

/** Ends incidents for webhooks that were deleted, or of which nothing is known any more; warns about certificates. */
export const FORGOTTEN_JOB: Job<{ db: Db }> = {
  name: "end incidents, and warn about certificates",
  everyS: 15,
  run: ({ db }) =>
    withPartitions(db, () =>
      db.transaction(async (trx) => {
        // Health is judged by one process at a time.
        await takeLock(trx, "fold");
        await noticeIncidents(trx, [...(await leaveForgotten(trx)), ...(await trackCertificates(trx))]);
      }),
    ),
};
