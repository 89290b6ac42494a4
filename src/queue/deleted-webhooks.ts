import { column, count, type Db } from "../lib/pg/index.ts";
import { cancelOfWebhooks } from "./endings.ts";

/**
 * The maximum number of open deliveries in each of `queue` and `retries` that the deletion of webhooks cancels itself. Maintenance
 * cancels the rest.
 */
const MAX_CANCELLED_IMMEDIATELY = 500;

/** Cancels up to 500 unclaimed deliveries per table. `cancelOfDeleted` cancels the rest. Requires the transaction of the deletion. */
export async function cancelFirst(trx: Db, ids: readonly bigint[]): Promise<void> {
  await cancelOfWebhooks(trx, ids, MAX_CANCELLED_IMMEDIATELY);
}

/** SQL: true if webhook `w` has rows in a table, else false or null. With `exists`, the planner would scan the table from its start. */
const hasRows = (table: "queue" | "retries") =>
  `(select t.webhook_id from ${table} t where t.webhook_id >= w.id order by t.webhook_id limit 1) = w.id`;

/** The maximum number of rows per table moved by one step of `cancelOfDeleted`. */
const CANCEL_STEP = 1_000;
/**
 * The time after the deletion of a webhook, in seconds, by which every publish that still saw the webhook has ended: statements time
 * out earlier.
 */
const LATEST_PUBLISH_S = 300;

/**
 * Cancels unclaimed open deliveries of deleted webhooks, at most 1,000 per table. If it finds none, it sets `webhooks.emptied` where no
 * open delivery is left and none can appear; later calls leave these webhooks out. After a deletion, deliveries can still appear by a
 * publish or a fan-out that began before it.
 *
 * @returns the number cancelled. If not 0, there may be more
 */
export async function cancelOfDeleted(db: Db): Promise<number> {
  const ids = await column<bigint>(
    db,
    `select w.id from webhooks w where w.deleted is not null and w.emptied is null and (
        ${hasRows("queue")} or ${hasRows("retries")}
      ) order by w.id limit :most::int`,
    { most: CANCEL_STEP },
  );
  const cancelled = ids.length === 0 ? 0 : await cancelOfWebhooks(db, ids, CANCEL_STEP);
  if (cancelled > 0) return cancelled;
  await count(
    db,
    `update webhooks w set emptied = now()
      where w.deleted < now() - make_interval(secs => :latest::int) and w.emptied is null
        and ${hasRows("queue")} is not true and ${hasRows("retries")} is not true
        and not exists (
          select from fan_out f where f.process = w.process and case when w.customer is null then f.revision < w.deleted_revision
            else f.customer = w.customer and f.customer_revision < w.deleted_revision end
        )`,
    { latest: LATEST_PUBLISH_S },
  );
  return 0;
}
