import { type Db, run } from "../database.ts";

/**
 * A part of the statement that folds: counts the failed attempts of webhooks with a breaker, from its part `tried`. Sets
 * `due` where there is something to decide. Webhooks without a breaker cost nothing: recording an attempt writes nothing
 * for it, and this part finds no row.
 *
 * Whether the failures or the successes of one step came last is not known; it counts as a success.
 */
export const NOTE_FOR_BREAKERS = `
  noted_for_breakers as (
    update webhook_breakers b set
      failures = case when t.succeeded then 0 else least(1000000, b.failures + t.failures) end,
      failing_since = case when not t.succeeded then coalesce(b.failing_since, now()) end,
      succeeded = b.succeeded or t.succeeded and (b.state = 'open' or b.outage_since is not null),
      due = case
        when t.succeeded and b.state = 'closed' and b.outage_since is null then b.due
        when t.succeeded or b.state = 'open' or b.failures + t.failures >= b.max_failures then now()
        else b.due end
    from tried t
    where b.webhook_id = t.webhook_id and b.state <> 'disabled'
      and (not t.succeeded or b.failures > 0 or b.state = 'open' or b.outage_since is not null)
  )`;

/** Notes that endpoints answered 410 Gone; only for webhooks that are disabled by it. */
export async function noteGone(db: Db, webhookId: bigint): Promise<void> {
  await run(
    db,
    db("webhook_breakers")
      .where({ webhook_id: webhookId, disable_on_gone: true, gone: false })
      .whereNot({ state: "disabled" })
      .update({ gone: true, due: db.fn.now() }),
  );
}
