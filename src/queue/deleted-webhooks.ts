import { count, type Db, rows } from "../lib/pg/index.ts";
import { idsOf } from "../webhooks/index.ts";
import { cancelOfWebhooks } from "./endings.ts";

/**
 * The number of open deliveries that are cancelled immediately when webhooks are deleted, in each of `queue` and `retries`.
 * Maintenance cancels the rest.
 */
const MAX_CANCELLED_IMMEDIATELY = 500;

/** Cancels the first open deliveries of webhooks. `cancelOfDeleted` cancels the others. Requires the transaction that deletes them. */
export async function cancelFirst(trx: Db, ids: readonly bigint[]): Promise<void> {
  await cancelOfWebhooks(trx, ids, MAX_CANCELLED_IMMEDIATELY);
}

/** Whether webhook `w` has rows. With "exists", the planner would scan the table from its start. */
const hasRows = (table: "queue" | "retries") =>
  `(select t.webhook_id from ${table} t where t.webhook_id >= w.id order by t.webhook_id limit 1) = w.id`;

/** The maximum number of rows per table moved by one step of `cancelOfDeleted`. */
const CANCEL_STEP = 1_000;
/**
 * The time after which a publish that read a webhook before its deletion must have ended, in seconds. Statements time
 * out earlier.
 */
const LATEST_PUBLISH_S = 300;

/**
 * Cancels open deliveries of deleted webhooks, at most 2,000 per step. Checks a webhook until no new deliveries can
 * appear: a publish, a fan-out or a claim may add some after its deletion.
 *
 * @returns the number cancelled. If the step is full, there may be more
 */
export async function cancelOfDeleted(db: Db): Promise<number> {
  const withRows = await rows<{ id: bigint }>(
    db,
    `select w.id from webhooks w where w.deleted is not null and w.emptied is null and (
        ${hasRows("queue")} or ${hasRows("retries")}
      ) order by w.id limit :most::int`,
    { most: CANCEL_STEP },
  );
  const ids = idsOf(withRows);
  const cancelled = ids.length === 0 ? 0 : await cancelOfWebhooks(db, ids, CANCEL_STEP);
  if (cancelled > 0) return cancelled;
  await count(
    db,
    `update webhooks w set emptied = now()
      where w.deleted < now() - make_interval(secs => :latest::int) and w.emptied is null
        and ${hasRows("queue")} is not true and ${hasRows("retries")} is not true
        and not exists (select from fan_out f where f.process = w.process and f.revision < w.deleted_revision)`,
    { latest: LATEST_PUBLISH_S },
  );
  return 0;
}
