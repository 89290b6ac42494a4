import { type ClaimedWebhook, loadClaimedWebhooks } from "./claimed-webhooks.ts";
import type { Bindings, Db } from "./database.ts";

/** An entry claimed this often without a result fails as `interrupted`. */
export const MAX_CLAIMS = 10;

/**
 * Who may record the next result of a delivery. A claim by another activity, or by a later attempt of the same one,
 * replaces it, so that late results match nothing.
 */
export interface ClaimToken {
  /** The run's row in `runs`. */
  runId: bigint;
  /** UUID, of one activity of one workflow execution. */
  activity: string;
  /** Temporal's attempt of that activity, from 1. */
  attempt: number;
}

/** A delivery to be made; what its event carries is loaded once an event. */
export interface ClaimedDelivery {
  id: string;
  eventId: string;
  /** One object for all of its deliveries, until the webhook changes. */
  webhook: ClaimedWebhook;
}

/** A claim's answer: what is to be sent, and how many rows went to an end instead. */
export interface ClaimResult {
  deliveries: ClaimedDelivery[];
  /** Rows touched, cancelled and interrupted ones included: 0 means that nothing was waiting. */
  touched: number;
  /** Some wait for their webhook's rate limit: they can be claimed a little later. */
  limited: boolean;
}

/**
 * Marks the rows of `chosen(place)`, which the statement has locked, as claimed, cancels those whose webhook or key
 * is gone, puts back those of paused webhooks, fails those claimed too often, and answers the rest.
 */
export const CLAIM_CHOSEN = `
  claimed as (
    update deliveries d set
      state = case
        when w.deleted is not null or k.revoked is not null then 'cancelled'
        when w.paused is not null then 'pending'
        when d.claims >= :maxClaims then 'failed'
        when d.state = 'retrying' then 'retrying'
        else 'delivering' end::delivery_state,
      reason = case
        when w.deleted is not null or k.revoked is not null then 'webhook deleted'
        when w.paused is null and d.claims >= :maxClaims then 'interrupted'
        else d.reason end,
      finished = case
        when w.deleted is not null or k.revoked is not null or (w.paused is null and d.claims >= :maxClaims) then now() end,
      claims = case when w.paused is null then d.claims + 1 else d.claims end,
      run_id = case when w.paused is null then :runId::bigint end,
      claim_activity = :activity::uuid, claim_attempt = :attempt::int
    from webhooks w, api_keys k
    -- By their place on disk: a join by id would tempt the planner to read the whole table while it is small.
    where d.ctid = any(array(select place from chosen)) and w.id = d.webhook_id and k.id = w.api_key_id
    returning d.id, d.event_id, d.webhook_id, d.state
  )`;

/**
 * How many deliveries each webhook of `source(webhook_id)` may be given now: null for as many as there are. Whoever
 * holds the webhook's row is giving it some already, so that the limit holds over all workers.
 */
export const allowances = (source: string) => `
  metered as (
    select w.id, least(w.rate_limit,
      -- Another claim that began later may have ended first: time does not run backwards then.
      w.rate_tokens + greatest(0, extract(epoch from now() - w.rate_at)) * w.rate_limit) as tokens
    from webhooks w where w.rate_limit is not null and w.id in (select webhook_id from ${source})
    for update skip locked
  ),
  allowed as (
    select s.webhook_id, case when w.rate_limit is not null then coalesce(greatest(0, floor(m.tokens))::int, 0) end as most
    from ${source} s join webhooks w on w.id = s.webhook_id left join metered m on m.id = w.id
  )`;

/** Takes what was claimed off the tokens of the webhooks that have a rate limit. */
export const SPEND_ALLOWANCES = `
  spent as (
    update webhooks w set rate_at = greatest(w.rate_at, now()), rate_tokens = m.tokens - coalesce(c.n, 0)
    from metered m left join (select webhook_id, count(*) as n from claimed group by 1) c on c.webhook_id = m.id
    where w.id = m.id
  )`;

/** A run that was closed, because it ended or its lease ran out, claims nothing more. The lock makes closing wait. */
export const OPEN_RUN = `open_run as (select id from runs where id = :runId::bigint and closed is null for share)`;

/** A row as the claim statement answers it. */
export interface ClaimRow {
  id: string;
  event_id: string;
  webhook_id: bigint;
  state: string;
}

/** The values of the claim statement, and of what it is made part of. */
export function claimBindings(token: ClaimToken, more: Bindings): Bindings {
  return {
    runId: token.runId,
    activity: token.activity,
    attempt: token.attempt,
    maxClaims: MAX_CLAIMS,
    ...more,
  };
}

/** What is to be sent of the rows that a claim touched. */
export async function toResult(db: Db, found: ClaimRow[]): Promise<ClaimResult> {
  const open = found.filter((row) => row.state === "delivering" || row.state === "retrying");
  const webhooks = await loadClaimedWebhooks(db, new Set(open.map((row) => row.webhook_id)));
  return {
    touched: found.length,
    limited: false,
    deliveries: open.map((row) => ({
      id: row.id,
      eventId: row.event_id,
      webhook: webhooks.get(row.webhook_id) as ClaimedWebhook,
    })),
  };
}
