import { OPERATOR, recordChanges } from "../audit/index.ts";
import { count, type Db, rows, transactionWithRetry } from "../lib/pg/index.ts";
import { webhookFacts, webhookTarget } from "./webhook-changes.ts";
import { type WebhookRow, webhookColumns } from "./webhooks.ts";

/** Stores that an evaluation of a webhook's filter took too long. */
export async function noteSlowFilter(db: Db, webhookId: bigint, filter: string): Promise<void> {
  await count(
    db,
    "update webhooks set filter_slow = now() where id = :webhookId::bigint and filter = :filter::text and deleted is null",
    { webhookId, filter },
  );
}

/**
 * Switches a webhook's filter off until a user sets one.
 *
 * @param onStopped publishes the notice, in the same transaction
 * @returns whether it was switched off; false if the webhook has another filter, or another process was faster
 */
export function stopFilter(
  db: Db,
  webhookId: bigint,
  filter: string,
  onStopped: (trx: Db, webhookId: bigint) => Promise<void>,
): Promise<boolean> {
  return transactionWithRetry(db, async (trx) => {
    const [webhook] = await rows<WebhookRow>(
      trx,
      `update webhooks w set filter_slow = now(), filter_stopped = now()
        where w.id = :webhookId::bigint and w.filter = :filter::text and w.filter_stopped is null and w.deleted is null
        returning ${webhookColumns("w")}`,
      { webhookId, filter },
    );
    if (!webhook) return false;
    const facts = webhookFacts(webhook);
    await recordChanges(trx, OPERATOR, [
      {
        action: "webhook_filter_stopped",
        target: webhookTarget(webhook),
        before: { ...facts, filter_stopped: null },
        after: facts,
      },
    ]);
    await onStopped(trx, webhookId);
    return true;
  });
}
