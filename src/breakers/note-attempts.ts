import { count, type Db } from "../lib/pg/index.ts";

/**
 * SQL queries of the fold statement that add the failed attempts in its query `tried` to the breakers of their webhooks. They set `due`
 * if there is something to decide. Webhooks without a breaker cost nothing, because they have no row in `webhook_breakers`. The webhooks
 * of an endpoint count together: each has a row, and all these rows get the same counts.
 *
 * If a webhook has failures and successes in one fold, the last attempt counts as a success, because their order is unknown.
 */
export const NOTE_FOR_BREAKERS = `
  tried_together as (
    select member.id as webhook_id, sum(t.failures)::int as failures, bool_or(t.succeeded) as succeeded
    from tried t join webhook_breakers b on b.webhook_id = t.webhook_id join webhooks w on w.id = t.webhook_id
      cross join lateral (
        select w.id
        union select s.id from webhooks s where s.endpoint_id = w.endpoint_id and s.deleted is null
      ) member
    group by 1
  ),
  held_breakers as (
    -- By webhook id, the order in which changes of endpoints lock breakers, to avoid deadlocks.
    select webhook_id from webhook_breakers where webhook_id in (select webhook_id from tried_together)
    order by webhook_id for no key update
  ),
  noted_for_breakers as (
    update webhook_breakers b set
      failures = case when t.succeeded then 0 else least(1000000, b.failures + t.failures) end,
      failing_since = case when not t.succeeded then coalesce(b.failing_since, now()) end,
      succeeded = b.succeeded or t.succeeded and (b.state = 'open' or b.outage_since is not null),
      due = case
        when t.succeeded and b.state = 'closed' and b.outage_since is null then b.due
        when t.succeeded or b.state = 'open' or b.failures + t.failures >= b.max_failures then now()
        else b.due end
    from tried_together t join held_breakers h on h.webhook_id = t.webhook_id
    where b.webhook_id = h.webhook_id and b.state <> 'disabled'
      and (not t.succeeded or b.failures > 0 or b.state = 'open' or b.outage_since is not null)
  )`;

/**
 * Notes that an endpoint answered 410 Gone, and makes its breaker due. Does nothing unless the breaker has `disable_on_gone`.
 *
 * @param targetUrl the normalised URL that answered. If the webhook's URL has changed since, nothing is noted
 */
export async function noteGone(db: Db, webhookId: bigint, targetUrl: string): Promise<void> {
  await count(
    db,
    // The share lock waits until a concurrent change of the URL is committed.
    `with present as (
        select id from webhooks where id = :webhookId::bigint and target_url = :targetUrl::text for share
      )
      update webhook_breakers b set gone = true, due = now() from present w
      where b.webhook_id = w.id and b.disable_on_gone and not b.gone and b.state <> 'disabled'`,
    { webhookId, targetUrl },
  );
}
