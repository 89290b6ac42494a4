import { type ClaimToken, OPEN_RUN } from "./claim-statement.ts";
import { count, type Db } from "./database.ts";

/** Moves a webhook's pending entries to the run, untried, for the retry activity to deliver at the receiver's pace. */
export async function handOver(
  db: Db,
  token: ClaimToken,
  webhookIds: readonly bigint[],
  limitEach: number,
): Promise<void> {
  await count(
    db,
    `with ${OPEN_RUN},
    chosen as (
      select d.place from open_run, unnest(:webhooks::bigint[]) as w(id) cross join lateral (
        select ctid as place from deliveries where state = 'pending' and webhook_id = w.id order by created
        limit :limitEach::int for update skip locked
      ) d
    )
    update deliveries d set state = 'delivering', run_id = :runId::bigint, claim_activity = null, claim_attempt = null
    where d.ctid = any(array(select place from chosen))`,
    { runId: token.runId, webhooks: webhookIds, limitEach },
  );
}

/** Gives claimed entries back untouched: pending again for a first attempt, or left to their run's retries. */
export async function release(
  db: Db,
  token: ClaimToken,
  ids: readonly string[],
  to: "pending" | "run",
): Promise<void> {
  if (ids.length === 0) return;
  await count(
    db,
    `update deliveries set claims = claims - 1, claim_activity = null, claim_attempt = null
      ${to === "pending" ? ", state = 'pending', run_id = null" : ""}
    where id = any(:ids::uuid[]) and run_id = :runId::bigint and claim_activity = :activity::uuid
      and claim_attempt = :attempt::int and state in ('delivering', 'retrying')`,
    { ids: ids as string[], runId: token.runId, activity: token.activity, attempt: token.attempt },
  );
}
