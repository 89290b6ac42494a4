/**
 * What happened to a delivery, as rollups count it. An attempt that ended its delivery counts as attempt and outcome.
 * A negative number takes an outcome back, when the delivery is sent again.
 */
export const CHANGE = { retrying: 0, delivered: 1, failed: 2, cancelled: 3 } as const;

/** Changes in one row, at most: it must fit a page, and each takes 14 bytes. */
const MAX_CHANGES = 500;

/**
 * A part of a statement that records outcomes: one row with what it changed, to be folded into the rollups later.
 *
 * @param changes a query of `webhook_id`, `change` and `duration_ms`, where -1 stands for no attempt
 */
export const deltaOf = (changes: string) => `
  delta as (
    insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
    select date_trunc('minute', now()), array_agg(webhook_id), array_agg(change), array_agg(duration_ms)
    from (select *, row_number() over () / ${MAX_CHANGES} as part from (${changes}) c) changed group by part
  )`;
