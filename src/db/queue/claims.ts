import { plainArray } from "../array-literal.ts";
import { type Bindings, count, type Db, rows } from "../database.ts";
import { endInterrupted } from "./endings.ts";
import { type ClaimedWebhook, loadClaimedWebhooks } from "./webhooks.ts";
import { isFree, WORKERS } from "./workers.ts";

/** A delivery claimed this often without a result fails as `interrupted`. */
export const MAX_CLAIMS = 10;
/** Webhooks visited by one claim of first attempts, at most: each costs a look into the index. */
const WEBHOOKS = 512;

/** Who claims, and for which run. */
export interface Claimant {
  /** Its row in `workers`. */
  workerId: number;
  /** The run's row in `runs`. */
  runId: number;
}

/** A worker whose row is gone claims nothing: its claims would be free at once. */
const IS_WORKER = `:workerId::int = any(${WORKERS})`;

/** Names the attempt that a result is of; with it a result is recorded once, and only while the claim holds. */
export interface ClaimToken {
  workerId: number;
  /** Attempts recorded before this one. */
  attempts: number;
  table: "queue" | "retries";
}

/** A delivery to be sent. Its payload is loaded once per event. */
export interface ClaimedDelivery {
  id: string;
  eventId: string;
  /** One object for all deliveries of the webhook, until its row changes. */
  webhook: ClaimedWebhook;
  token: ClaimToken;
}

/** What a claim found. */
export interface ClaimResult {
  deliveries: ClaimedDelivery[];
  /** Rows claimed; 0 means that nothing was waiting. */
  touched: number;
  /** Some wait for their webhook's rate limit and can be claimed a little later. */
  limited: boolean;
}

/**
 * Claims deliveries for their first attempt, oldest first within a webhook, fairly between webhooks: each that is
 * visited and waits gets the same share of `limit`, at least one. Paused and deleted webhooks get nothing.
 *
 * A claim changes no index and locks no row of another table.
 *
 * @param options.after webhooks are visited upwards from this id, so that the start can rotate
 * @param options.excluded webhooks that get nothing now
 * @returns also the webhook id to go on after, or null when the last webhook was visited
 */
export async function claimPending(
  db: Db,
  claimant: Claimant,
  options: { limit: number; after: bigint; excluded: readonly bigint[]; webhooks?: number },
): Promise<ClaimResult & { next: bigint | null }> {
  const { limit, after, excluded, webhooks = WEBHOOKS } = options;
  const found = await rows<FoundRow & { next: bigint | null }>(
    db,
    `with recursive waiting(webhook_id, n) as (
      (select webhook_id, 1 from queue where webhook_id > :after::bigint order by webhook_id limit 1)
      union all
      -- One index probe per webhook, however many rows each has.
      select (select q.webhook_id from queue q where q.webhook_id > waiting.webhook_id order by q.webhook_id limit 1), n + 1
      from waiting where waiting.webhook_id is not null and n < :webhooks::int
    ),
    eligible as materialized (
      select s.webhook_id from waiting s cross join lateral (
        select from webhooks w
        where w.id = s.webhook_id and w.paused is null and w.deleted is null and s.webhook_id <> all(:excluded::bigint[])
          and ${IS_WORKER}
        offset 0
      ) w
        -- One whose rows are all claimed must not make the others' shares smaller.
        cross join lateral (
          select from queue q where q.webhook_id = s.webhook_id and ${isFree("q")} order by id limit 1
        ) free
    ), ${allowances("eligible")},
    chosen as (
      select d.place from allowed s cross join lateral (
        select ctid as place from queue q where q.webhook_id = s.webhook_id and ${isFree("q")} order by id
        limit least(s.most, greatest(1, :limit::int / greatest(1, (select count(*)::int from eligible))))
        for update skip locked
      ) d limit :limit::int
    ), ${claimed("queue")}, ${SPEND_ALLOWANCES}
    select c.*, v.next, exists (select from allowed where most is not null) as limited
    from (select case when count(webhook_id) = :webhooks::int then max(webhook_id) end as next from waiting) v
      left join claimed c on true order by c.id`,
    {
      ...claimant,
      after,
      limit,
      excluded: plainArray(excluded),
      webhooks: Math.min(limit, webhooks),
    } satisfies Bindings,
    { prepare: "claim_pending" },
  );
  return { ...(await toResult(db, claimant, "queue", found)), next: found[0]?.next ?? null };
}

/** What can be sent of a run's retries. */
const DUE = `t.run_id = :runId::int and t.due <= now() and ${isFree("t")}`;

/** Claims retries of a group that are due, fairly between its webhooks. */
export async function claimGroup(
  db: Db,
  claimant: Claimant,
  options: { group: number; limit: number; excluded: readonly bigint[] },
): Promise<ClaimResult> {
  const { group, limit, excluded } = options;
  const found = await rows<FoundRow>(
    db,
    `with members as materialized (
      -- One index probe per webhook. With "exists" the planner, as long as it takes the run for small, would join each
      -- webhook with all rows of the run.
      select g.webhook_id from run_groups g
        cross join lateral (
          select from webhooks w where w.id = g.webhook_id and w.paused is null and w.deleted is null and ${IS_WORKER} offset 0
        ) w
        cross join lateral (select from retries t where t.webhook_id = g.webhook_id and ${DUE} limit 1) due
      where g.run_id = :runId::int and g.group_number = :group::int and g.webhook_id <> all(:excluded::bigint[])
    ), ${allowances("members")},
    chosen as (
      select c.place from allowed s cross join lateral (
        select t.ctid as place from retries t where t.webhook_id = s.webhook_id and ${DUE}
        limit least(s.most, greatest(1, :limit::int / greatest(1, (select count(*)::int from members))))
        for update skip locked
      ) c limit :limit::int
    ), ${claimed("retries")}, ${SPEND_ALLOWANCES}
    select c.*, v.limited from (select exists (select from allowed where most is not null) as limited) v
      left join claimed c on true order by c.id`,
    { ...claimant, group, limit, excluded: plainArray(excluded) },
    { prepare: "claim_group" },
  );
  return toResult(db, claimant, "retries", found);
}

/** Marks the rows of `chosen(place)`, which the statement has locked. By place: a join by id may read the whole table. */
const claimed = (table: "queue" | "retries") => `
  claimed as (
    update ${table} set claimed_by = :workerId::int, run_id = :runId::int, claims = claims + 1
    where ctid = any(array(select place from chosen))
    returning id, event_id, webhook_id, attempts, claims
  )`;

/**
 * How many deliveries each webhook of `source(webhook_id)` may be given now: null for as many as there are. Whoever
 * holds the webhook's row is giving it some already, so that the limit holds over all workers.
 */
const allowances = (source: string) => `
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
const SPEND_ALLOWANCES = `
  spent as (
    update webhooks w set rate_at = greatest(w.rate_at, now()), rate_tokens = m.tokens - coalesce(c.n, 0)
    from metered m left join (select webhook_id, count(*) as n from claimed group by 1) c on c.webhook_id = m.id
    where w.id = m.id
  )`;

/** A row as a claim statement answers it; all null but the last where it claimed nothing. */
interface FoundRow {
  id: string | null;
  event_id: string;
  webhook_id: bigint;
  attempts: number;
  claims: number;
  limited: boolean;
}

async function toResult(
  db: Db,
  { workerId }: Claimant,
  table: ClaimToken["table"],
  found: readonly FoundRow[],
): Promise<ClaimResult> {
  const taken = found.filter((row): row is FoundRow & { id: string } => row.id !== null);
  const interrupted = taken.filter(({ claims }) => claims > MAX_CLAIMS).map(({ id }) => id);
  if (interrupted.length > 0) await endInterrupted(db, table, workerId, interrupted);
  const open = taken.filter(({ claims }) => claims <= MAX_CLAIMS);
  const webhooks = await loadClaimedWebhooks(db, new Set(open.map((row) => row.webhook_id)));
  return {
    touched: taken.length,
    limited: found[0]?.limited ?? false,
    deliveries: open.map((row) => ({
      id: row.id,
      eventId: row.event_id,
      webhook: webhooks.get(row.webhook_id) as ClaimedWebhook,
      token: { workerId, attempts: row.attempts, table },
    })),
  };
}

/** Gives claimed deliveries back as if they had not been claimed. */
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
