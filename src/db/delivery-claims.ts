import type { Db } from "./database.ts";
import { type Bindings, rows } from "./database.ts";

/** An entry claimed this often without a result fails as `interrupted`. */
export const MAX_CLAIMS = 10;

/**
 * Who may record the next result of a delivery. A claim by another activity, or by a later attempt of the same one,
 * replaces it, so that late results match nothing.
 */
export interface ClaimToken {
  /** The run's row in `runs`. */
  runId: bigint;
  /** Unique to one activity of one workflow execution. */
  activity: string;
  /** Temporal's attempt of that activity, from 1. */
  attempt: number;
}

/** Everything one POST needs, but for the payload, which is loaded once an event. */
export interface ClaimedDelivery {
  id: string;
  eventId: string;
  webhookId: bigint;
  /** Number of the WebhookProcess. */
  process: number;
  targetUrl: string;
  sealedSecret: Buffer;
  /** Set when the webhook was registered by an installed app. */
  installedAppId: string | null;
  userId: string;
  /** Recorded attempts over all rounds. */
  attempts: number;
}

/** A claim's answer: what is to be sent, and how many rows went to an end instead. */
export interface ClaimResult {
  deliveries: ClaimedDelivery[];
  /** Rows touched, cancelled and interrupted ones included: 0 means that nothing was waiting. */
  touched: number;
}

/**
 * Marks the rows of `chosen(id)` as claimed, cancels those whose webhook or key is gone, puts back those of paused
 * webhooks, fails those claimed too often, and answers the rest.
 */
const CLAIM_CHOSEN = `
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
      claim_activity = :activity, claim_attempt = :attempt::int
    from chosen c, webhooks w, api_keys k, events e
    where d.id = c.id and w.id = d.webhook_id and k.id = w.api_key_id and e.id = d.event_id
    returning d.id, d.event_id, d.webhook_id, d.state, d.attempts, w.process, w.target_url, w.secret,
      w.installed_app_id, e.user_id
  )
  select * from claimed order by id`;

/** A run that was closed, because it ended or its lease ran out, claims nothing more. The lock makes closing wait. */
const OPEN_RUN = `open_run as (select id from runs where id = :runId::bigint and closed is null for share)`;

/**
 * Claims pending deliveries, oldest first within a webhook, fairly between webhooks: at most `share` of each, or
 * more when fewer webhooks wait than would fill the chunk.
 *
 * @param options.after webhooks are visited upwards from this id, so that the start can rotate
 * @param options.excluded webhooks that get nothing now
 * @returns also the highest webhook id visited, to go on from, or null at the end of the round
 */
export async function claimPending(
  db: Db,
  token: ClaimToken,
  options: { limit: number; share: number; after: bigint; excluded: readonly bigint[]; webhooks?: number },
): Promise<ClaimResult & { visited: bigint | null }> {
  const found = await rows<ClaimRow & { visited: bigint | null }>(
    db,
    `with recursive ${OPEN_RUN},
    waiting(webhook_id, n) as (
      (select webhook_id, 1 from deliveries
        where state = 'pending' and webhook_id > :after::bigint order by webhook_id limit 1)
      union all
      -- One index probe a webhook, however many entries each has.
      select (select d.webhook_id from deliveries d
        where d.state = 'pending' and d.webhook_id > waiting.webhook_id order by d.webhook_id limit 1), n + 1
      from waiting where waiting.webhook_id is not null and n < :webhooks::int
    ),
    eligible as (
      select s.webhook_id from waiting s join webhooks w on w.id = s.webhook_id
      where w.paused is null and s.webhook_id <> all(:excluded::bigint[])
    ),
    chosen as (
      select d.id from open_run, eligible s cross join lateral (
        select id from deliveries where state = 'pending' and webhook_id = s.webhook_id order by created
        limit greatest(:share::int, :limit::int / greatest(1, (select count(*)::int from eligible)))
        for update skip locked
      ) d limit :limit::int
    ), ${CLAIM_CHOSEN.replace("select * from claimed order by id", "")}
    select c.*, v.visited from (select max(webhook_id) as visited from waiting) v
      left join claimed c on true order by c.id`,
    claimBindings(token, {
      after: options.after,
      excluded: options.excluded,
      limit: options.limit,
      share: options.share,
      webhooks: options.webhooks ?? 100,
    }),
  );
  return { ...toResult(found.filter((row) => row.id !== null)), visited: found[0]?.visited ?? null };
}

/** Claims anew what an earlier attempt of the same activity had claimed and not brought to a result. */
export async function takeOver(db: Db, token: ClaimToken): Promise<ClaimResult> {
  const found = await rows<ClaimRow>(
    db,
    `with ${OPEN_RUN},
    chosen as (
      select d.id from open_run, deliveries d
      where d.run_id = open_run.id and d.state in ('delivering', 'retrying')
        and d.claim_activity = :activity and d.claim_attempt < :attempt::int
      order by d.id for update of d
    ), ${CLAIM_CHOSEN}`,
    claimBindings(token, {}),
  );
  return toResult(found);
}

/**
 * Claims the next entries of a retry group, those with the fewest attempts in their round only, so that one pass
 * brings stragglers level and never tries an entry twice.
 *
 * @param options.level attempts in the round that an entry must have, as `groupStatus` tells
 */
export async function claimGroup(
  db: Db,
  token: ClaimToken,
  options: { group: number; level: number; limit: number; excluded: readonly bigint[] },
): Promise<ClaimResult> {
  const found = await rows<ClaimRow>(
    db,
    `with ${OPEN_RUN},
    chosen as (
      select d.id from open_run, run_groups g, deliveries d
      where g.run_id = open_run.id and g.group_number = :group::int
        and d.run_id = g.run_id and d.webhook_id = g.webhook_id and d.state in ('delivering', 'retrying')
        and d.webhook_id <> all(:excluded::bigint[])
        and d.attempts - d.round_start = :level::int
        and (d.claim_activity, d.claim_attempt) is distinct from (:activity, :attempt::int)
      order by d.id limit :limit::int for update of d
    ), ${CLAIM_CHOSEN}`,
    claimBindings(token, {
      group: options.group,
      level: options.level,
      limit: options.limit,
      excluded: options.excluded,
    }),
  );
  return toResult(found);
}

/** Moves a webhook's pending entries to the run, untried, for the retry activity to deliver at the receiver's pace. */
export async function handOver(
  db: Db,
  token: ClaimToken,
  webhookIds: readonly bigint[],
  limitEach: number,
): Promise<void> {
  await rows(
    db,
    `with ${OPEN_RUN},
    chosen as (
      select d.id from open_run, unnest(:webhooks::bigint[]) as w(id) cross join lateral (
        select id from deliveries where state = 'pending' and webhook_id = w.id order by created
        limit :limitEach::int for update skip locked
      ) d
    )
    update deliveries d set state = 'delivering', run_id = :runId::bigint, claim_activity = null, claim_attempt = null
    from chosen c where d.id = c.id`,
    { runId: token.runId, webhooks: webhookIds, limitEach },
  );
}

/** Gives claimed entries back untouched: pending again for a first attempt, or left to their run's retries. */
export async function release(
  db: Db,
  token: ClaimToken,
  ids: readonly string[],
  to: "pending" | "run",
): Promise<void> {
  if (ids.length === 0) return;
  await rows(
    db,
    `update deliveries set claims = claims - 1, claim_activity = null, claim_attempt = null
      ${to === "pending" ? ", state = 'pending', run_id = null" : ""}
    where id = any(:ids::uuid[]) and run_id = :runId::bigint and claim_activity = :activity
      and claim_attempt = :attempt::int and state in ('delivering', 'retrying')`,
    { ids: ids as string[], runId: token.runId, activity: token.activity, attempt: token.attempt },
  );
}

interface ClaimRow {
  id: string;
  event_id: string;
  webhook_id: bigint;
  state: string;
  attempts: number;
  process: number;
  target_url: string;
  secret: Buffer;
  installed_app_id: string | null;
  user_id: string;
}

function claimBindings(token: ClaimToken, more: Bindings): Bindings {
  return {
    runId: token.runId,
    activity: token.activity,
    attempt: token.attempt,
    maxClaims: MAX_CLAIMS,
    ...more,
  };
}

function toResult(found: ClaimRow[]): ClaimResult {
  const open = found.filter((row) => row.state === "delivering" || row.state === "retrying");
  return {
    touched: found.length,
    deliveries: open.map((row) => ({
      id: row.id,
      eventId: row.event_id,
      webhookId: row.webhook_id,
      process: row.process,
      targetUrl: row.target_url,
      sealedSecret: row.secret,
      installedAppId: row.installed_app_id,
      userId: row.user_id,
      attempts: row.attempts,
    })),
  };
}
