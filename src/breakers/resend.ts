import type { AuditRecord } from "../audit/index.ts";
import { count, type Db, rows } from "../lib/pg/index.ts";
import { MAX_ROWS_PER_STATEMENT, sentManyAgain, startRound } from "../log/index.ts";
import { ATTEMPTS_PER_ROUND, readWaiting } from "../queue/index.ts";
import { NIL_ID } from "../schema/index.ts";

/** The maximum number of rounds, of four attempts each, up to which the service sends a delivery again without a user's request. */
const MAX_ROUNDS = 3;

/** The maximum number of a webhook's deliveries in `queue` that were queued again. Newer deliveries wait behind them. */
const MAX_WAITING = 500;

/** The time to the next step while the queue has no room for more of the webhook's deliveries, in seconds. */
export const RESEND_AGAIN_S = 1;

/** The result of a step. */
export interface ResendStep {
  /** Entries for the audit log. */
  entries: AuditRecord[];
  /** What is left to send again: nothing, perhaps some, or perhaps some for which the queue has no room yet. */
  left: "nothing" | "some" | "no room";
}

/**
 * Starts a new round for the next deliveries of a webhook that failed in its outage, oldest first. Examines at most 500 failed
 * deliveries. Requires the lock of the webhook's breaker.
 *
 * @param retentionDays the age, in days, from which deliveries are not sent again
 * @param maxPending the maximum number of pending deliveries of a webhook; more would fail. 0 for no limit
 */
export async function resendStep(
  trx: Db,
  webhookId: bigint,
  retentionDays: number,
  maxPending: number,
): Promise<ResendStep> {
  const room = await roomFor(trx, webhookId, maxPending);
  if (room === 0) return { entries: [], left: "no room" };
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
  const all = found.filter((delivery) => delivery.chosen);
  const chosen = all.slice(0, room);
  const last = chosen.length < all.length ? chosen.at(-1) : found.at(-1);
  const ended = chosen.length === all.length && found.length < MAX_ROWS_PER_STATEMENT;
  await count(
    trx,
    ended
      ? `update webhook_breakers set resend_from = null, resend_until = null, resend_after = null
          where webhook_id = :webhookId::bigint`
      : "update webhook_breakers set resend_after = :last::uuid where webhook_id = :webhookId::bigint",
    { webhookId, last: last?.id ?? null },
  );
  const left = ended ? "nothing" : "some";
  if (last === undefined || chosen.length === 0) return { entries: [], left };
  const ids = chosen.map(({ id }) => id);
  const again = await startRound(trx, "everything", ids, retentionDays);
  if (again.length === 0) return { entries: [], left };
  const filter = { search: undefined, states: ["failed" as const], from: last.from, to: last.until };
  return { entries: await sentManyAgain(trx, filter, again), left };
}

/** The number of deliveries that may be sent again now, within `MAX_WAITING`, `maxPending` and the quota of the customer. */
async function roomFor(trx: Db, webhookId: bigint, maxPending: number): Promise<number> {
  const waiting = await readWaiting(trx, webhookId, { limit: maxPending, oldest: MAX_WAITING });
  const { again, pending, customerRoom } = waiting;
  const room = Math.min(MAX_WAITING - again, customerRoom ?? MAX_WAITING);
  return maxPending === 0 ? room : Math.max(0, Math.min(room, maxPending - pending));
}
