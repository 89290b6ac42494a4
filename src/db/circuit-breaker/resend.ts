import type { AuditRecord } from "../audit/audit-log.ts";
import { sentManyAgain } from "../audit/delivery-changes.ts";
import { count, type Db, rows } from "../database.ts";
import { MAX_ROWS_PER_STATEMENT, startRound } from "../deliveries/send-again.ts";
import { NIL_ID } from "../partitions.ts";
import { ATTEMPTS_PER_ROUND } from "../queue/results.ts";

/** The maximum number of rounds of a delivery that is sent again without a user's request. */
const MAX_ROUNDS = 3;

/**
 * Sends the next deliveries again that failed in the outage of a webhook, oldest first. Examines at most 500 failed ones.
 * Requires the lock of its breaker.
 *
 * @returns entries for the audit log, and whether none is left
 */
export async function resendStep(
  trx: Db,
  webhookId: bigint,
  retentionDays: number,
): Promise<{ entries: AuditRecord[]; ended: boolean }> {
  const found = await rows<{ id: string; chosen: boolean; from: Date; until: Date }>(
    trx,
    `select d.id, b.resend_from as "from", b.resend_until as until,
        d.finished between b.resend_from and b.resend_until and d.attempts < :most::int as chosen
      from webhook_breakers b cross join lateral (
        select id, finished, attempts from deliveries
        where webhook_id = b.webhook_id and outcome = 'failed'
          and id > coalesce(b.resend_after, '${NIL_ID}')
        order by id limit :limit::int
      ) d where b.webhook_id = :webhookId::bigint order by d.id`,
    { webhookId, limit: MAX_ROWS_PER_STATEMENT, most: MAX_ROUNDS * ATTEMPTS_PER_ROUND },
  );
  const last = found.at(-1);
  const ended = last === undefined || found.length < MAX_ROWS_PER_STATEMENT;
  await count(
    trx,
    ended
      ? `update webhook_breakers set resend_from = null, resend_until = null, resend_after = null
          where webhook_id = :webhookId::bigint`
      : "update webhook_breakers set resend_after = :last::uuid where webhook_id = :webhookId::bigint",
    { webhookId, last: last?.id ?? null },
  );
  const chosen = found.filter((delivery) => delivery.chosen).map(({ id }) => id);
  if (last === undefined || chosen.length === 0) return { entries: [], ended };
  const again = await startRound(trx, "everything", chosen, retentionDays);
  if (again.length === 0) return { entries: [], ended };
  const filter = { search: undefined, states: ["failed" as const], from: last.from, to: last.until };
  return { entries: await sentManyAgain(trx, filter, again), ended };
}
