import { type Db, rows } from "../lib/pg/index.ts";
import { isFree } from "../queue/index.ts";
import { RESEND_AGAIN_S } from "./resend.ts";

/**
 * Whether circuit breakers are about to make deliveries claimable, so that a pump should not end yet. True in three cases: the probe of
 * an open breaker waits unclaimed in `queue`; an open breaker is due to choose another probe because a filter did not match the last one;
 * or a closed breaker sends failed deliveries again, step by step. Breakers that are due for other reasons do not count: among many, one
 * is nearly always due.
 */
export async function areDeliveriesExpected(db: Db): Promise<boolean> {
  const [found] = await rows<{ expected: boolean }>(
    db,
    `select exists (
        select from webhook_breakers b join webhooks w on w.id = b.webhook_id
        where b.due <= now() and b.state = 'open' and b.next_probe < b.due and w.test_delivery is null and w.deleted is null
      ) or exists (
        select from webhook_breakers b join webhooks w on w.id = b.webhook_id join queue q on q.id = w.test_delivery
        where b.state = 'open' and w.deleted is null and ${isFree("q")}
      ) or exists (
        select from webhook_breakers b join webhooks w on w.id = b.webhook_id
        where b.due <= now() + interval '${RESEND_AGAIN_S} seconds' and b.resend_until is not null and b.state = 'closed'
          and w.paused is null and w.deleted is null
      ) as expected`,
  );
  return found?.expected ?? false;
}
