import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";

/**
 * Codes of changes counted by rollups. `retrying` is an attempt that did not end its delivery; the others are outcomes. An outcome also
 * counts as an attempt if it has a duration. A negative code subtracts an outcome, because the delivery was sent again.
 */
export const CHANGE = { retrying: 0, delivered: 1, failed: 2, cancelled: 3, filtered: 4 } as const;

/**
 * SQL for whether any webhook subscribes to notices of failed deliveries. PostgreSQL evaluates it at most once per statement, and only
 * if a delivery has failed.
 */
const IS_NOTICED = `(select p.live + p.customers_live > 0 from processes p where p.process = ${WebhookProcess.DELIVERY_FAILED})`;

/** The maximum number of changes per row. A row must fit into a page; each change takes 14 bytes. */
const MAX_CHANGES_PER_ROW = 500;

/**
 * SQL query `delta` for statements that record outcomes: inserts the changes into `rollup_deltas`, up to 500 per row, to be folded into
 * the rollups later. Stores the ids of failed deliveries only while a webhook subscribes to notices of them.
 *
 * @param changes an SQL query of `id`, `webhook_id`, `change` and `duration_ms`; a duration of -1 means no attempt
 */
export const deltaOf = (changes: string) => `
  delta as (
    insert into rollup_deltas (minute, webhook_ids, changes, durations_ms, failed_ids)
    select date_trunc('minute', now()), array_agg(webhook_id), array_agg(change), array_agg(duration_ms),
      array_agg(id) filter (where change = ${CHANGE.failed} and ${IS_NOTICED})
    from (select *, row_number() over () / ${MAX_CHANGES_PER_ROW} as part from (${changes}) c) changed group by part
  )`;
