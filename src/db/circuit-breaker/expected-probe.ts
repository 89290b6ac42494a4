import { type Db, rows } from "../database.ts";

/**
 * Whether a probe of an open breaker ended without an attempt, because a filter did not match, and the next one is chosen
 * soon. Does not count breakers that are due for another reason: where there are many, one nearly always is.
 */
export async function isProbeExpected(db: Db): Promise<boolean> {
  const [found] = await rows<{ expected: boolean }>(
    db,
    `select exists (
        select from webhook_breakers b join webhooks w on w.id = b.webhook_id
        where b.due <= now() and b.state = 'open' and b.next_probe < b.due and w.test_delivery is null and w.deleted is null
      ) as expected`,
  );
  return found?.expected ?? false;
}
