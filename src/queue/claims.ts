import { type Bindings, count, type Db, plainArray, rows } from "../lib/pg/index.ts";
import { NIL_ID } from "../schema/index.ts";
import { type ClaimedWebhook, ClaimedWebhooks } from "../webhooks/index.ts";
import { distinctOf, isFree, MAX_ID, ofWebhook, ratePerSecond, retriesOf, WORKERS } from "./conditions.ts";
import { endInterrupted } from "./endings.ts";
import { burstOf, fewAfterHold, isHeld, paceOf } from "./holds.ts";
import { GROUP_WEBHOOKS, type GroupKey, HAS_RETRIES, MAY_RETRY, webhookOf } from "./retry-groups.ts";

/** The maximum number of claims of a delivery without a result. Beyond it, the delivery fails as `interrupted`. */
export const MAX_CLAIMS = 10;

/**
 * SQL for a binding whose value the planner does not see. If it saw the values, a plan for these would appear cheaper than the generic
 * plan of the prepared statement, and PostgreSQL would plan each claim anew, which takes a millisecond.
 */
const unplanned = (binding: string) => `(select ${binding})`;

/** SQL for whether a claim visits a webhook: it is not excluded. Costs one lookup in a hash table, however many are excluded. */
const isVisited = (webhookId: string) =>
  `${webhookId} not in (select unnest(${unplanned(":excluded::bigint[]")}))`;

/** The worker and run that claim. */
export interface Claimant {
  /** The worker's row in `workers`. */
  workerId: number;
  /** The run's row in `runs`. */
  runId: number;
}

/** SQL for whether the claiming worker has a row in `workers`. Without one, other workers could claim the same rows immediately. */
const IS_WORKER = `:workerId::int = any(${WORKERS})`;

/** Identifies an attempt of a delivery, so that its result is recorded only once, and only while the claim is valid. */
export interface ClaimToken {
  workerId: number;
  /** The number of attempts recorded before this one. */
  attempts: number;
  table: "queue" | "retries";
}

/** A claimed delivery, without its payload: `loadContents` loads payloads, once per event. */
export interface ClaimedDelivery {
  id: string;
  eventId: string;
  /** The same object for all deliveries of the webhook until the webhook's row changes. */
  webhook: ClaimedWebhook;
  token: ClaimToken;
  /** The run that has claimed it. */
  runId: number;
  /** The number of its retry group; undefined for a first attempt. */
  group?: number | undefined;
}

/** The result of a claim. */
export interface ClaimResult {
  deliveries: ClaimedDelivery[];
  /** The number of rows claimed. Includes deliveries that failed as `interrupted`, which `deliveries` omits. */
  touched: number;
}

/** The result of a claim of first attempts. */
export interface PendingClaim extends ClaimResult {
  /**
   * The time until a later claim may find more deliveries, in milliseconds: until the earliest next token of a visited webhook with a rate
   * limit or pace that had unclaimed deliveries, even if this claim took all of them, or end of a hold of a visited webhook. 0 if other
   * claims held tokens. Null if no webhook has to wait.
   */
  laterMs: number | null;
  /** The webhook id after which to continue; null if the last webhook was visited. */
  next: bigint | null;
  /** The number of workers: the rows in `workers`, this worker's included. */
  workers: number;
}

/**
 * Claims deliveries for their first attempt, oldest first within a webhook and fairly between owners: each visited webhook of the
 * operator with unclaimed deliveries, and each customer with such webhooks, gets an equal share of `limit`, which a customer's webhooks
 * divide; each webhook gets at least one while `limit` lasts. Visits at most `limit` webhooks. Leaves out deleted
 * webhooks. Of a webhook that is paused, or whose receiver wants no requests now, claims only `webhooks.test_delivery`: a test event's
 * delivery, or the probe of a circuit breaker.
 *
 * Writes to no index of `queue`, because no indexed column changes. In other tables, a claim locks and changes only the rows of
 * `webhooks` and `endpoints` that hold the tokens of rate limits.
 *
 * @param options.limit the maximum number of rows claimed
 * @param options.after the webhook id after which the visit starts, so that successive claims can rotate over all webhooks
 * @param options.excluded ids of webhooks not to visit
 * @param known the process's cache of webhooks. Defaults to an empty cache
 * @param oldest the webhooks to visit, by id in ascending order, each with the id of the first delivery to consider. Defaults to all
 *   webhooks with rows in `queue`, each from its oldest delivery
 */
export async function claimPending(
  db: Db,
  claimant: Claimant,
  options: { limit: number; after: bigint; excluded: readonly bigint[] },
  known = new ClaimedWebhooks(),
  oldest?: ReadonlyMap<bigint, string>,
): Promise<PendingClaim> {
  const { limit, after, excluded } = options;
  const visited = oldest && [...oldest].filter(([id]) => id > after).slice(0, limit);
  const found = await rows<FoundRow & Pick<PendingClaim, "laterMs" | "next" | "workers">>(
    db,
    `with recursive ${visited ? GIVEN_WEBHOOKS : WAITING_WEBHOOKS},
    visited as materialized (
      select s.webhook_id, w.* from waiting s
        cross join lateral (
          -- Looks the row up by id only. Conditions on its other columns follow outside, kept there by offset 0: with them, the
          -- planner may scan a whole partial index.
          select w.deleted, w.customer, ${ratePerSecond("w")} as rate_limit, w.endpoint_id, ${fewAfterHold("w")} as few,
            case when ${isHeld("w")} and w.paused is null and w.deleted is null then w.held_until end as held_until,
            -- The pace does not slow a test delivery during a hold.
            case when ${isHeld("w")} is not true then ${paceOf("w")} end as pace,
            -- Of a paused or held webhook, only the test delivery or the probe.
            case when ${IS_OPEN} then ${visited ? "s.first_id" : `'${NIL_ID}'::uuid`} else w.test_delivery end as first_id,
            case when ${IS_OPEN} then ${MAX_ID} else w.test_delivery end as last_id
          from webhooks w where w.id = s.webhook_id and ${isVisited("s.webhook_id")} and ${IS_WORKER}
          offset 0
        ) w
    ),
    eligible as materialized (
      select s.* from visited s
        -- Only webhooks with an unclaimed delivery divide the limit.
        cross join lateral (
          select from queue q where ${ofWebhook("q", "s.webhook_id", "s.first_id", "s.last_id")}
            and ${isFree("q")} order by q.webhook_id, q.id limit 1
        ) free
      where s.deleted is null and s.first_id is not null
    ), ${allowances("eligible", LEFT_TO_RETRIES)},
    customer as (
      select customer, count(*)::int as webhooks from eligible where customer is not null group by customer
    ),
    owners as (
      select (select count(*) from eligible where customer is null)::int + (select count(*) from customer)::int as n
    ),
    chosen as (
      select d.place from (
        select s.*, greatest(1, :limit::int / greatest(1, (select n from owners)) / coalesce(c.webhooks, 1)) as share
        from allowed s left join customer c on c.customer = s.customer
        -- The limit ends before webhooks of customers with many, which are chosen by chance.
        order by share desc, random()
      ) s cross join lateral (
        select ctid as place from queue q
        where ${ofWebhook("q", "s.webhook_id", "s.first_id", "s.last_id")} and ${isFree("q")}
        order by q.webhook_id, q.id limit least(s.most, s.few, s.share) for update skip locked
      ) d limit ${unplanned(":limit::int")}
    ), ${claimed("queue", ":runId::int")}, ${SPEND_ALLOWANCES}
    select c.*, v.next, cardinality(${WORKERS}) as workers,
      least(
        (select min(wait_ms) from spending),
        (select 0 from allowed where is_locked limit 1),
        -- A delivery in flight, whose response began the hold, does not wait for its end.
        (select ceil(1000 * extract(epoch from min(v.held_until) - now()))::float8 from visited v
          cross join lateral (
            select from queue q where ${ofWebhook("q", "v.webhook_id")} and ${isFree("q")}
            order by q.webhook_id, q.id limit 1
          ) waiting
          where v.held_until is not null)
      ) as "laterMs"
    from (select case when count(webhook_id) = :limit::int then max(webhook_id) end as next from waiting) v
      left join claimed c on true order by c.id`,
    {
      ...claimant,
      after,
      limit,
      excluded: plainArray(excluded),
      webhookIds: plainArray(visited?.map(([id]) => id) ?? []),
      firstIds: plainArray(visited?.map(([, id]) => id) ?? []),
    } satisfies Bindings,
    { prepare: visited ? "claim_given" : "claim_pending" },
  );
  const { next = null, workers = 1, laterMs = null } = found[0] ?? {};
  return { ...(await toResult(db, known, claimant.workerId, "queue", found)), laterMs, next, workers };
}

/** SQL for whether all pending deliveries of webhook `w` may be claimed: it is not paused, and its receiver has not asked for a hold. */
const IS_OPEN = `w.paused is null and ${isHeld("w")} is not true`;

/** SQL query `waiting`: the webhooks with rows in `queue`, by id, after `:after`, at most `:limit`. */
const WAITING_WEBHOOKS = distinctOf("waiting", "webhook_id", "queue", {
  where: `webhook_id > ${unplanned(":after::bigint")}`,
  most: unplanned(":limit::int"),
});

/** SQL query `waiting`: the webhooks of the parameter `oldest`, each with the id of the first delivery to consider. */
const GIVEN_WEBHOOKS = `waiting(webhook_id, first_id) as (select * from unnest(:webhookIds::bigint[], :firstIds::uuid[]))`;

/** The result of a claim of retries. */
export interface RetryClaim extends ClaimResult {
  /**
   * The groups with due retries of rate-limited webhooks that get a token within a second: some may wait for it. Listed even if this claim
   * took all of them.
   */
  limited: GroupKey[];
}

/** SQL `from … where …` for the unclaimed due retries of a webhook in a run. */
const dueOf = (runId: string, webhookId: string) =>
  `from retries t where ${retriesOf(runId, webhookId, "now()")} and ${isFree("t")}`;

/** SQL that orders the rows of `dueOf` by due time and limits their number. Only one index has this order, so the planner must use it. */
const earliest = (limit: string) => `order by t.run_id, t.webhook_id, t.due limit ${limit}`;

/**
 * Claims due retries of groups, the earliest of each webhook first and fairly between the webhooks. Leaves out webhooks whose receivers
 * want no requests now.
 *
 * A claim reads one entry of `run_groups` per webhook of the groups. For each webhook that is not excluded, it makes one index lookup
 * in `retries`. For each webhook with due retries, it reads the row of `webhooks`. It reads no retries that are not due or whose webhook
 * is excluded: for 300 excluded webhooks with 18,000 retries, it reads 300 entries. An index lookup also passes the claimed retries of
 * its webhook, of which the sender keeps few.
 *
 * @param options.groups the groups to claim for, without duplicates
 * @param options.limit the maximum number of rows claimed
 * @param options.excluded ids of webhooks not to visit
 * @param known the process's cache of webhooks. Defaults to an empty cache
 */
export async function claimDue(
  db: Db,
  workerId: number,
  options: { groups: readonly GroupKey[]; limit: number; excluded: readonly bigint[] },
  known = new ClaimedWebhooks(),
): Promise<RetryClaim> {
  const { groups, limit, excluded } = options;
  const found = await rows<FoundRow & { limited: GroupKey[] }>(
    db,
    `with members as materialized (
      -- One index lookup per webhook and run. With "exists", a planner that underestimates the retries of a run would join each
      -- webhook with all of them.
      select q.run_id, q.group_number, g.webhook_id from ${GROUP_WEBHOOKS}
        cross join lateral (select ${dueOf("q.run_id", "g.webhook_id")} ${earliest("1")}) due
      where ${isVisited("g.webhook_id")} and ${IS_WORKER}
    ),
    failing as materialized (
      -- One row per webhook, even if several runs retry it: the runs share its rate limit.
      select m.*, w.paused, w.test_delivery, w.probe_attempts, ${ratePerSecond("w")} as rate_limit, ${paceOf("w")} as pace,
        ${fewAfterHold("w")} as few, w.endpoint_id
      from (
          select webhook_id, array_agg(run_id) as run_ids, array_agg(group_number) as group_numbers
          from members group by webhook_id
        ) m ${webhookOf("m")}
      where w.deleted is null and ${HAS_RETRIES} and ${isHeld("w")} is not true
    ), ${allowances("failing", "0")},
    chosen as (
      -- In random order: if the limit is smaller than the number of webhooks, all have the same chance.
      select c.* from (
        select *, least(most, few, greatest(1, :limit::int / greatest(1, (select count(*)::int from failing)))) as share
        from allowed order by random()
      ) w cross join lateral (
        select t.*, r.group_number from unnest(w.run_ids, w.group_numbers) r(run_id, group_number) cross join lateral (
          select t.ctid as place, t.id ${dueOf("r.run_id", "w.webhook_id")} and ${MAY_RETRY}
          ${earliest("w.share")} for update skip locked
        ) t limit w.share
      ) c limit ${unplanned(":limit::int")}
    ), ${claimed("retries", "run_id")}, ${SPEND_ALLOWANCES}
    select c.*, v.limited from (
        select coalesce(json_agg(distinct jsonb_build_object('runId', g.run_id, 'group', g.group_number)), '[]') as limited
        from allowed a cross join lateral unnest(a.run_ids, a.group_numbers) g(run_id, group_number)
        where a.is_locked or a.webhook_id in (select unnest(s.webhook_ids) from spending s where s.wait_ms <= 1000)
      ) v
      left join (select c.*, s.group_number from claimed c join chosen s on s.id = c.id) c on true
    order by c.id`,
    {
      workerId,
      runIds: plainArray(groups.map(({ runId }) => runId)),
      groups: plainArray(groups.map(({ group }) => group)),
      limit,
      excluded: plainArray(excluded),
    },
    { prepare: "claim_due" },
  );
  return { ...(await toResult(db, known, workerId, "retries", found)), limited: found[0]?.limited ?? [] };
}

/**
 * SQL query `claimed`: claims the rows of `chosen(place)`, which the statement has already locked. `place` is the ctid: a join by id may
 * scan the whole table.
 *
 * @param runId SQL for the run that claims
 */
const claimed = (table: "queue" | "retries", runId: string) => `
  claimed as (
    update ${table} set claimed_by = :workerId::int, run_id = ${runId}, claims = claims + 1
    where ctid = any(array(select place from chosen))
    returning id, event_id, webhook_id, run_id, attempts, claims
  )`;

/** SQL for the current tokens of a bucket, a row of `webhooks` or `endpoints`. It gains `limit` tokens a second, up to `burst`. */
const tokensOf = (bucket: string, limit: string, burst: string) =>
  // A claim that began later may have ended first and stored its later time: no time has passed then.
  `least(${burst}, ${bucket}.rate_tokens + greatest(0, extract(epoch from now() - ${bucket}.rate_at)) * ${limit})`;

/**
 * SQL for the new `rate_at` of a bucket: now, or the stored time if that is later, because a claim that began later stored it. A
 * stored time more than a minute ahead is replaced by now: the clock of the database was set back.
 */
const refilledAt = (bucket: string) =>
  `case when ${bucket}.rate_at > now() + interval '1 minute' then now() else greatest(${bucket}.rate_at, now()) end`;

/** First attempts leave the rate-limit tokens of one second in so many to retries; of slow limits, one token in so many. */
const RETRY_PERIOD_S = 5;
/** SQL for the seconds in which bucket `b` gains the tokens that it can hold: one, or those that it needs for a token. */
const FILL_S = "greatest(1, 1 / b.rate_limit)::numeric";

/** SQL: true if a webhook has retries, due or not; null if it has none. */
const hasRetries = (webhookId: string) =>
  `(select true from retries t where ${ofWebhook("t", webhookId)} order by t.webhook_id, t.id limit 1)`;

/**
 * SQL for the tokens of bucket `b` that a claim of first attempts leaves to retries. In one second of five, these are the tokens gained
 * since that second began; otherwise, or without retries, 0. First attempts are claimed more often and would take nearly all tokens.
 * Tokens that retries do not use stay in the bucket, which holds the tokens of one second. With a slow limit, such a second lasts as long
 * as the bucket gains one token.
 */
const LEFT_TO_RETRIES = `
  case when floor(extract(epoch from now()) / ${FILL_S})::int8 % ${RETRY_PERIOD_S} = 0 and case
      when b.alone is not null then ${hasRetries("b.alone")}
      else (select true from webhooks o where o.endpoint_id = b.endpoint_id and ${hasRetries("o.id")} limit 1) end
    then b.rate_limit * (extract(epoch from now()) % ${FILL_S})::float8 else 0 end`;

/**
 * SQL queries `divided` and `allowed`: the number of deliveries, `most`, that each webhook of
 * `source(webhook_id, rate_limit, pace, endpoint_id)` may get now; null for no limit. `rate_limit` and `pace` are in deliveries a second:
 * the lower one counts. A bucket of tokens belongs to an endpoint, or to a webhook without one. The webhooks of an endpoint divide its tokens
 * evenly. One token each of a remainder goes to the webhooks whose ids follow that of the last webhook served from an earlier remainder
 * (`endpoints.served`). If another claim has locked a bucket, its webhooks get 0 (`is_locked`), so that the rate limit holds over all
 * workers.
 *
 * Makes one index lookup per bucket. With joins, the planner would read all webhooks for each bucket while its statistics show a small
 * table.
 *
 * @param left SQL for the tokens of bucket `b` that the claim does not use
 */
const allowances = (source: string, left: string) => `
  divided as (
    select d.*, (d.whole + d.members - d.place) / d.members as most
    from (
      select b.*, s.webhook_id, t.tokens, greatest(0, floor(t.tokens - l.tokens))::int as whole,
        case when l.tokens > 0 then (${FILL_S} - extract(epoch from now()) % ${FILL_S})::float8 end as left_for_s,
        cardinality(b.webhook_ids) as members,
        (row_number() over (partition by b.alone, b.endpoint_id
          order by s.webhook_id <= coalesce(t.served, 0), s.webhook_id))::int as place
      from (
        select case when endpoint_id is null then webhook_id end as alone, endpoint_id, max(least(rate_limit, pace)) as rate_limit,
          max(${burstOf("rate_limit", "pace")}) as burst, array_agg(webhook_id) as webhook_ids
        from ${source} where coalesce(rate_limit, pace) is not null group by 1, 2
      ) b
        cross join lateral (
          select ${tokensOf("r", "b.rate_limit", "b.burst")} as tokens, r.served from (
            select * from (
              select w.rate_tokens, w.rate_at, null::bigint as served from webhooks w where w.id = b.alone for update skip locked
            ) w
            union all
            select * from (
              select e.rate_tokens, e.rate_at, e.served from endpoints e where e.id = b.endpoint_id for update skip locked
            ) e
          ) r
        ) t
        cross join lateral (select (${left})::float8 as tokens) l
        cross join lateral unnest(b.webhook_ids) s(webhook_id)
    ) d
  ),
  allowed as materialized (
    select s.*, case when coalesce(s.rate_limit, s.pace) is not null then coalesce(d.most, 0) end as most,
      coalesce(s.rate_limit, s.pace) is not null and d.webhook_id is null as is_locked
    from ${source} s left join divided d on d.webhook_id = s.webhook_id
  )`;

/**
 * SQL queries that subtract the claimed deliveries from the tokens of `divided`, and store the last webhook served from a remainder. `wait_ms`
 * of `spending` is the time until the next token that the claim may use, in milliseconds.
 */
const SPEND_ALLOWANCES = `
  spending as (
    select d.alone, d.endpoint_id, d.tokens - sum(coalesce(c.n, 0)) as tokens, d.webhook_ids,
      ceil(1000 * greatest(0, d.left_for_s, (1 - d.tokens + sum(coalesce(c.n, 0))) / d.rate_limit))::float8 as wait_ms,
      (array_agg(d.webhook_id order by d.place))[d.whole % d.members] as served
    from divided d
      left join (select webhook_id, count(*)::int as n from claimed group by 1) c on c.webhook_id = d.webhook_id
    group by d.alone, d.endpoint_id, d.tokens, d.rate_limit, d.left_for_s, d.webhook_ids, d.whole, d.members
  ),
  spent as (
    update webhooks w set rate_at = ${refilledAt("w")}, rate_tokens = s.tokens
    from spending s where w.id = any(array(select alone from spending)) and w.id = s.alone
  ),
  spent_shared as (
    update endpoints e set rate_at = ${refilledAt("e")}, rate_tokens = s.tokens, served = coalesce(s.served, e.served)
    from spending s where e.id = any(array(select endpoint_id from spending)) and e.id = s.endpoint_id
  )`;

/** A row of a claim statement. If nothing was claimed, there is one row, in which these columns are null. */
interface FoundRow {
  id: string | null;
  event_id: string;
  webhook_id: bigint;
  run_id: number;
  attempts: number;
  claims: number;
  /** The retry group. Only in claims of retries. */
  group_number?: number;
}

async function toResult(
  db: Db,
  known: ClaimedWebhooks,
  workerId: number,
  table: ClaimToken["table"],
  found: readonly FoundRow[],
): Promise<ClaimResult> {
  const taken = found.filter((row): row is FoundRow & { id: string } => row.id !== null);
  const interrupted = taken.filter(({ claims }) => claims > MAX_CLAIMS).map(({ id }) => id);
  if (interrupted.length > 0) await endInterrupted(db, table, workerId, interrupted);
  const open = taken.filter(({ claims }) => claims <= MAX_CLAIMS);
  const webhooks = await known.load(db, new Set(open.map((row) => row.webhook_id)));
  return {
    touched: taken.length,
    deliveries: open.map((row) => ({
      id: row.id,
      eventId: row.event_id,
      webhook: webhooks.get(row.webhook_id) as ClaimedWebhook,
      token: { workerId, attempts: row.attempts, table },
      runId: row.run_id,
      group: row.group_number,
    })),
  };
}

/** Releases claimed deliveries; the claims do not count toward `MAX_CLAIMS`. Ignores rows that the worker no longer holds. */
export async function release(
  db: Db,
  workerId: number,
  deliveries: readonly Pick<ClaimedDelivery, "id" | "token">[],
): Promise<void> {
  for (const table of ["queue", "retries"] as const) {
    const ids = deliveries.filter(({ token }) => token.table === table).map(({ id }) => id);
    if (ids.length === 0) continue;
    await count(
      db,
      `update ${table} set claims = claims - 1, claimed_by = null
        where id = any(:ids::uuid[]) and claimed_by = :workerId::int`,
      { ids: plainArray(ids), workerId },
    );
  }
}
