import { type Bindings, count, type Db, plainArray, rows } from "../lib/pg/index.ts";
import { NIL_ID } from "../schema/index.ts";
import { distinctOf, isFree, MAX_ID, ofWebhook, retriesOf, WORKERS } from "./conditions.ts";
import { endInterrupted } from "./endings.ts";
import { GROUP_WEBHOOKS, type GroupKey, HAS_RETRIES, MAY_RETRY, webhookOf } from "./retry-groups.ts";
import { type ClaimedWebhook, ClaimedWebhooks } from "./webhooks.ts";

/** The maximum number of claims of a delivery without a result. Beyond it, the delivery fails as `interrupted`. */
export const MAX_CLAIMS = 10;

/**
 * SQL for a binding whose value has no effect on the plan. With its value, a plan for a few rows appears cheaper than the prepared
 * one, and PostgreSQL would plan each claim anew, which takes a millisecond.
 */
const unplanned = (binding: string) => `(select ${binding})`;

/** SQL for whether a claim visits a webhook: one search in a hash table, however many are excluded. */
const isVisited = (webhookId: string) =>
  `${webhookId} not in (select unnest(${unplanned(":excluded::bigint[]")}))`;

/** The worker and run that claim. */
export interface Claimant {
  /** The worker's row in `workers`. */
  workerId: number;
  /** The run's row in `runs`. */
  runId: number;
}

/** A worker without a row must not claim: its claims would be free immediately. */
const IS_WORKER = `:workerId::int = any(${WORKERS})`;

/** Identifies an attempt, so that its result is recorded once and only while the claim holds. */
export interface ClaimToken {
  workerId: number;
  /** The number of attempts recorded before this one. */
  attempts: number;
  table: "queue" | "retries";
}

/** A claimed delivery. Its payload is loaded once per event. */
export interface ClaimedDelivery {
  id: string;
  eventId: string;
  /** Shared by all deliveries of the webhook until its row changes. */
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
  /** The number of rows claimed; 0 if none was available. */
  touched: number;
}

/** The result of a claim of first attempts. */
export interface PendingClaim extends ClaimResult {
  /** Whether some deliveries wait for their webhook's rate limit and can be claimed soon. */
  limited: boolean;
  /** The webhook id after which to continue; null if the last webhook was visited. */
  next: bigint | null;
  /** The number of workers that claim, at least one. */
  workers: number;
}

/**
 * Claims deliveries for their first attempt, oldest first within a webhook and fairly between webhooks: each visited
 * webhook with pending deliveries gets an equal share of `limit`, at least one, and at most `limit` webhooks are visited. Paused and
 * deleted webhooks are skipped, except for the test delivery of a paused one.
 *
 * A claim updates no index. Of other tables, it locks the rows that hold the tokens of rate limits.
 *
 * @param options.after the webhook id after which the visit starts, so that the start can rotate
 * @param options.excluded webhooks to skip
 * @param known the process's cache of webhooks; all are loaded without it
 * @param oldest the only webhooks to visit, in the order of their ids, with the id of the first delivery to claim;
 *   all webhooks, from their oldest delivery, without it
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
  const found = await rows<FoundRow & { next: bigint | null; workers: number; limited: boolean }>(
    db,
    `with recursive ${visited ? GIVEN_WEBHOOKS : WAITING_WEBHOOKS},
    eligible as materialized (
      select s.webhook_id, w.* from waiting s
        cross join lateral (
          -- The row is found by its id alone: with the conditions, the planner may read the whole of a partial index.
          select w.deleted, w.rate_limit, w.endpoint_id,
            -- Of a paused webhook, the test delivery alone.
            case when w.paused is null then ${visited ? "s.first_id" : `'${NIL_ID}'::uuid`} else w.test_delivery end as first_id,
            case when w.paused is null then ${MAX_ID} else w.test_delivery end as last_id
          from webhooks w where w.id = s.webhook_id and ${isVisited("s.webhook_id")} and ${IS_WORKER}
          offset 0
        ) w
        -- One whose rows are all claimed must not make the others' shares smaller.
        cross join lateral (
          select from queue q where ${ofWebhook("q", "s.webhook_id", "w.first_id", "w.last_id")}
            and ${isFree("q")} order by q.webhook_id, q.id limit 1
        ) free
      where w.deleted is null and w.first_id is not null
    ), ${allowances("eligible", LEFT_TO_RETRIES)},
    chosen as (
      select d.place from allowed s cross join lateral (
        select ctid as place from queue q
        where ${ofWebhook("q", "s.webhook_id", "s.first_id", "s.last_id")} and ${isFree("q")}
        order by q.webhook_id, q.id
        limit least(s.most, greatest(1, :limit::int / greatest(1, (select count(*)::int from eligible))))
        for update skip locked
      ) d limit ${unplanned(":limit::int")}
    ), ${claimed("queue", ":runId::int")}, ${SPEND_ALLOWANCES}
    select c.*, v.next, cardinality(${WORKERS}) as workers,
      exists (select from allowed where most is not null) as limited
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
  const { next = null, workers = 1, limited = false } = found[0] ?? {};
  return { ...(await toResult(db, known, claimant.workerId, "queue", found)), limited, next, workers };
}

/** SQL for the webhooks with rows in `queue`. */
const WAITING_WEBHOOKS = distinctOf("waiting", "webhook_id", "queue", {
  where: `webhook_id > ${unplanned(":after::bigint")}`,
  most: unplanned(":limit::int"),
});

/** SQL for the webhooks that the caller knows, and the first id to claim. */
const GIVEN_WEBHOOKS = `waiting(webhook_id, first_id) as (select * from unnest(:webhookIds::bigint[], :firstIds::uuid[]))`;

/** The result of a claim of retries. */
export interface RetryClaim extends ClaimResult {
  /** The groups of which some due retries wait for their webhook's rate limit. */
  limited: GroupKey[];
}

/** SQL for the due retries of a webhook in a run that no live worker has claimed, the earliest first. */
const dueOf = (runId: string, webhookId: string) =>
  `from retries t where ${retriesOf(runId, webhookId, "now()")} and ${isFree("t")}`;

/** SQL that orders and limits them. The order leaves the planner one index to choose from. */
const earliest = (limit: string) => `order by t.run_id, t.webhook_id, t.due limit ${limit}`;

/**
 * Claims due retries of groups, the earliest of each webhook first and fairly between the webhooks.
 *
 * A claim reads an entry of `run_groups` for each webhook of the groups, makes one index probe in `retries` for each that is not
 * excluded, and reads the rows of `webhooks` of those with due retries. It does not read retries that are not due, or whose
 * webhook is excluded: of 300 hanging webhooks with 18,000 retries, a claim reads 300 entries. A probe reads past the claimed
 * retries of its webhook, of which the sender holds few.
 *
 * @param options.groups each group once
 * @param options.excluded webhooks to skip
 * @param known as `claimPending` takes it
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
      -- One index probe per webhook and run. With "exists" the planner, as long as it takes the run for small, would join each
      -- webhook with all rows of the run.
      select q.run_id, q.group_number, g.webhook_id from ${GROUP_WEBHOOKS}
        cross join lateral (select ${dueOf("q.run_id", "g.webhook_id")} ${earliest("1")}) due
      where ${isVisited("g.webhook_id")} and ${IS_WORKER}
    ),
    failing as materialized (
      -- Once, however many runs retry it: its rate limit holds for all of them.
      select m.*, w.paused, w.test_delivery, w.probe_attempts, w.rate_limit, w.endpoint_id from (
          select webhook_id, array_agg(run_id) as run_ids, array_agg(group_number) as group_numbers
          from members group by webhook_id
        ) m ${webhookOf("m")}
      where w.deleted is null and ${HAS_RETRIES}
    ), ${allowances("failing", "0")},
    chosen as (
      -- In random order: if the limit is smaller than the number of webhooks, all have the same chance.
      select c.* from (
        select *, least(most, greatest(1, :limit::int / greatest(1, (select count(*)::int from failing)))) as share
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
        from allowed a cross join lateral unnest(a.run_ids, a.group_numbers) g(run_id, group_number) where a.most is not null
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
 * SQL that marks the rows of `chosen(place)`, already locked by the statement. Joins by ctid: a join by id may scan
 * the whole table.
 *
 * @param runId SQL for the run that claims
 */
const claimed = (table: "queue" | "retries", runId: string) => `
  claimed as (
    update ${table} set claimed_by = :workerId::int, run_id = ${runId}, claims = claims + 1
    where ctid = any(array(select place from chosen))
    returning id, event_id, webhook_id, run_id, attempts, claims
  )`;

/** SQL for the tokens of a bucket: a row of `webhooks` or `endpoints`. */
const tokensOf = (bucket: string, limit: string) =>
  // Another claim that began later may have ended first: time does not run backwards then.
  `least(${limit}, ${bucket}.rate_tokens + greatest(0, extract(epoch from now() - ${bucket}.rate_at)) * ${limit})`;

/**
 * SQL for the new time of a bucket: now, or that of a claim that began later. A time more than a minute ahead is from before the
 * clock of the database was set back.
 */
const refilledAt = (bucket: string) =>
  `case when ${bucket}.rate_at > now() + interval '1 minute' then now() else greatest(${bucket}.rate_at, now()) end`;

/** The period, in seconds, of which first attempts leave one second to the retries of a rate-limited webhook or endpoint. */
const RETRY_PERIOD_S = 5;

/** SQL for whether a webhook has retries, due or not; null if not. */
const hasRetries = (webhookId: string) =>
  `(select true from retries t where ${ofWebhook("t", webhookId)} order by t.webhook_id, t.id limit 1)`;

/**
 * SQL for the tokens that first attempts leave to retries: in one second of five, those that have come in since its beginning.
 * Claims of first attempts are more frequent, and would take nearly all. Unused tokens stay in the bucket, which holds those of one second.
 */
const LEFT_TO_RETRIES = `
  case when floor(extract(epoch from now()))::int8 % ${RETRY_PERIOD_S} = 0 and case
      when b.alone is not null then ${hasRetries("b.alone")}
      else (select true from webhooks o where o.endpoint_id = b.endpoint_id and ${hasRetries("o.id")} limit 1) end
    then b.rate_limit * (extract(epoch from now()) % 1)::float8 else 0 end`;

/**
 * SQL for the number of deliveries that each webhook of `source(webhook_id, rate_limit, endpoint_id)` may get now; null for no
 * limit. A bucket of tokens belongs to an endpoint or to a webhook alone. The webhooks of an endpoint divide its tokens evenly. Tokens
 * that are left over by the division go to the webhooks after the last one that got such a token. Skips webhooks whose bucket is locked
 * by another claim, so that the rate limit holds over all workers.
 *
 * One index probe per bucket: with joins, the planner would read all webhooks for each of them as long as it takes the
 * table for small.
 *
 * @param left SQL for the tokens that a claim leaves in bucket `b`
 */
const allowances = (source: string, left: string) => `
  divided as (
    select d.*, (d.whole + d.members - d.place) / d.members as most
    from (
      select b.*, s.webhook_id, t.tokens, greatest(0, floor(t.tokens - ${left}))::int as whole,
        cardinality(b.webhook_ids) as members,
        (row_number() over (partition by b.alone, b.endpoint_id
          order by s.webhook_id <= coalesce(t.served, 0), s.webhook_id))::int as place
      from (
        select case when endpoint_id is null then webhook_id end as alone, endpoint_id, max(rate_limit) as rate_limit,
          array_agg(webhook_id) as webhook_ids
        from ${source} where rate_limit is not null group by 1, 2
      ) b
        cross join lateral (
          select ${tokensOf("r", "b.rate_limit")} as tokens, r.served from (
            select * from (
              select w.rate_tokens, w.rate_at, null::bigint as served from webhooks w where w.id = b.alone for update skip locked
            ) w
            union all
            select * from (
              select e.rate_tokens, e.rate_at, e.served from endpoints e where e.id = b.endpoint_id for update skip locked
            ) e
          ) r
        ) t
        cross join lateral unnest(b.webhook_ids) s(webhook_id)
    ) d
  ),
  allowed as materialized (
    select s.*, case when s.rate_limit is not null then coalesce(d.most, 0) end as most
    from ${source} s left join divided d on d.webhook_id = s.webhook_id
  )`;

/** SQL that subtracts the claimed deliveries from the tokens of rate-limited webhooks and endpoints. */
const SPEND_ALLOWANCES = `
  spending as (
    select d.alone, d.endpoint_id, d.tokens - sum(coalesce(c.n, 0)) as tokens,
      (array_agg(d.webhook_id order by d.place))[d.whole % d.members] as served
    from divided d
      left join (select webhook_id, count(*)::int as n from claimed group by 1) c on c.webhook_id = d.webhook_id
    group by d.alone, d.endpoint_id, d.tokens, d.whole, d.members
  ),
  spent as (
    update webhooks w set rate_at = ${refilledAt("w")}, rate_tokens = s.tokens
    from spending s where w.id = any(array(select alone from spending)) and w.id = s.alone
  ),
  spent_shared as (
    update endpoints e set rate_at = ${refilledAt("e")}, rate_tokens = s.tokens, served = coalesce(s.served, e.served)
    from spending s where e.id = s.endpoint_id
  )`;

/** A row of a claim statement; these columns are null if nothing was claimed. */
interface FoundRow {
  id: string | null;
  event_id: string;
  webhook_id: bigint;
  run_id: number;
  attempts: number;
  claims: number;
  /** For a retry. */
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

/** Releases claimed deliveries as if they had not been claimed. */
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
