import { plainArray } from "../array-literal.ts";
import { count, type Db, rows } from "../database.ts";
import type { Claimant, ClaimedDelivery } from "./claims.ts";
import { isFree } from "./workers.ts";

/** Gives claimed deliveries back as if they had not been claimed. */
export async function release(
  db: Db,
  workerId: number,
  deliveries: readonly Pick<ClaimedDelivery, "id" | "token">[],
): Promise<void> {
  for (const table of ["queue", "retries"] as const) {
    const ids = deliveries.filter(({ token }) => token.table === table).map(({ id }) => id);
    if (ids.length === 0) continue;
    await count(
      db,
      `update ${table} set claims = claims - 1, claimed_by = null
        where id = any(:ids::uuid[]) and claimed_by = :workerId::int`,
      { ids: plainArray(ids), workerId },
    );
  }
}

/** Moves rows `gone` of the queue to the retries of the run, due at once. */
const TO_RUN = `
  insert into retries (id, event_id, webhook_id, run_id, claims, attempts, round_start, due)
  select id, event_id, webhook_id, :runId::int, 0, attempts, attempts, now() from gone`;

/** Gives claimed first attempts to the run's retry activities, untried. */
export async function releaseToRun(
  db: Db,
  { workerId, runId }: Claimant,
  ids: readonly string[],
): Promise<void> {
  if (ids.length === 0) return;
  await rows(
    db,
    `with gone as (
        delete from queue where id = any(:ids::uuid[]) and claimed_by = :workerId::int
        returning id, event_id, webhook_id, attempts
      ) ${TO_RUN}`,
    { ids: plainArray(ids), workerId, runId },
  );
}

/** Gives webhooks' waiting first attempts to the run's retry activities, which send at the receiver's pace. */
export async function handOver(
  db: Db,
  runId: number,
  webhookIds: readonly bigint[],
  limitEach: number,
): Promise<void> {
  await rows(
    db,
    `with chosen as materialized (
        select d.place from unnest(:webhookIds::bigint[]) w(id) cross join lateral (
          select ctid as place from queue q where q.webhook_id = w.id and ${isFree("q")} order by id
          limit :limitEach::int for update skip locked
        ) d
      ),
      gone as (
        delete from queue where ctid = any(array(select place from chosen))
        returning id, event_id, webhook_id, attempts
      ) ${TO_RUN}`,
    { runId, webhookIds, limitEach },
  );
}
