import type { Condition } from "../calls/index.ts";
import { type Db, transactionWithRetry } from "../lib/pg/index.ts";
import { idsOf, markDeleted, type WebhookRow } from "./webhooks.ts";

/** Cancels open deliveries of webhooks, in the transaction that deletes them. */
export type OnDeleted = (trx: Db, ids: readonly bigint[]) => Promise<void>;

/**
 * Deletes a live webhook. The contract (4.3) lets each key delete any webhook of its instance.
 *
 * @param which a condition on row `w`. Defaults to any webhook
 * @returns the deleted webhook; null if there is no such live one with this id
 */
export function deleteWebhook(
  db: Db,
  id: bigint,
  onDeleted: OnDeleted,
  { sql, bindings }: Condition = { sql: "true", bindings: {} },
): Promise<WebhookRow | null> {
  return transactionWithRetry(db, async (trx) => {
    const [webhook] = await markDeleted(trx, `w.id = :id::bigint and ${sql}`, { id, ...bindings });
    if (!webhook) return null;
    await onDeleted(trx, [id]);
    return webhook;
  });
}

/**
 * Deletes some live webhooks, or all of a key, as `deleteWebhook` does. Returns them. Requires a transaction.
 */
export async function deleteWebhooks(
  trx: Db,
  which: { ids: readonly bigint[] } | { apiKeyId: string },
  onDeleted: OnDeleted,
): Promise<WebhookRow[]> {
  const deleted = await ("ids" in which
    ? markDeleted(trx, "w.id = any(:ids::bigint[])", which)
    : markDeleted(trx, "w.api_key_id = :apiKeyId::uuid", which));
  await onDeleted(trx, idsOf(deleted));
  return deleted;
}
