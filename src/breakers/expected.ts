import { type Db, rows } from "../lib/pg/index.ts";
import { isFree } from "../queue/index.ts";
import { RESEND_AGAIN_S } from "./resend.ts";

/**
 * Whether a probe of an open breaker can be claimed, or is chosen soon because the last one ended without an attempt: a
 * filter did not match. Also whether failed deliveries are sent again, step by step. Does not count breakers that are due for
 * another reason: where there are many, one nearly always is.
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
