import type { Db } from "../database.ts";
import { count, rows } from "../database.ts";

/** The maximum number of retry groups of a run, which bounds the size of its history. */
export const MAX_GROUPS = 200;
/**
 * The time from which a row of `retries t` can be sent: when it is due and the lease of its claim, if any, has
 * expired.
 */
const DUE = `greatest(t.due, (select lease_until from workers w where w.id = t.claimed_by))`;
/** The number of webhooks with a dedicated group if more than MAX_GROUPS fail: those with the most deliveries. */
const OWN_GROUPS = 150;
/** The number of groups shared by the other webhooks. Each group is an activity, which costs more than a delivery. */
const SHARED_GROUPS = MAX_GROUPS - OWN_GROUPS;

/**
 * The condition that retry `t` of webhook `w` may be sent: the webhook is not paused, or the retry is the probe of its
 * circuit breaker. `probe_attempts` lets it through for one attempt only. With "or", the planner would take the condition for a rare
 * one, and sort all retries of the webhook.
 */
export const MAY_RETRY =
  "case when w.paused is null then true else t.id = w.test_delivery and t.attempts = w.probe_attempts end";
/** The condition that some retries of webhook `w` may be sent. */
export const HAS_RETRIES = "(w.paused is null or w.probe_attempts is not null)";

/** A failing webhook within a run. */
export interface FailingWebhook {
  webhookId: bigint;
  group: number;
  targetUrl: string;
  /** The number of its open deliveries in the run. */
  deliveries: number;
  /** The time until the first of them is due, in milliseconds; 0 if one is due. */
  delayMs: number;
  /** Whether the delivery is a probe of the webhook's circuit breaker. */
  isProbe: boolean;
}

/** The maximum number of retries that a run adopts in one step. */
const MAX_ADOPTED_PER_STEP = 10_000;

const adoptable = (ofRun: string) => `
  select t.ctid as place from retries t join webhooks w on w.id = t.webhook_id
  where ${ofRun} and ${MAY_RETRY} and w.deleted is null and t.due < now() + interval '1 minute'
  limit :most::int for update of t skip locked`;

/**
 * Assigns a run the retries that are due within a minute and have no run or a closed one: their run was cancelled or
 * its lease expired, or their webhook was paused and is resumed.
 */
export async function adoptRetries(db: Db, runId: number): Promise<number> {
  return count(
    db,
    `with recursive known(run_id) as (
        (select run_id from retries where run_id is not null order by run_id limit 1)
        union all
        select (select t.run_id from retries t where t.run_id > known.run_id order by t.run_id limit 1)
        from known where known.run_id is not null
      ),
      closed as (
        -- The account of a run may be deleted by now.
        select known.run_id from known left join runs r on r.id = known.run_id
        where known.run_id is not null and (r.id is null or r.closed is not null)
      ),
      -- One index probe per webhook, so that the many retries of paused webhooks are not visited.
      lost(webhook_id) as (
        (select webhook_id from retries where run_id is null order by run_id, webhook_id limit 1)
        union all
        select (
          select t.webhook_id from retries t where t.run_id is null and t.webhook_id > lost.webhook_id
          order by t.run_id, t.webhook_id limit 1
        ) from lost where lost.webhook_id is not null
      ),
      orphans as (
        select t.place from lost join webhooks w on w.id = lost.webhook_id and ${HAS_RETRIES} and w.deleted is null
          cross join lateral (
            select t.ctid as place from retries t
            where t.run_id is null and t.webhook_id = lost.webhook_id and ${MAY_RETRY} and t.due < now() + interval '1 minute'
            limit :most::int for update of t skip locked
          ) t
        limit :most::int
      ),
      left_over as (
        select t.place from closed cross join lateral (${adoptable("t.run_id = closed.run_id")}) t
      ),
      chosen as (select place from orphans union all select place from left_over)
      update retries set run_id = :runId::int where ctid = any(array(select place from chosen))`,
    { runId, most: MAX_ADOPTED_PER_STEP },
  );
}

/** Removes the retries of paused and deleted webhooks from a run, so that it can close; probes stay. */
export async function leavePaused(db: Db, runId: number): Promise<number> {
  return count(
    db,
    `update retries t set run_id = null from webhooks w
      where t.run_id = :runId::int and w.id = t.webhook_id and ((${MAY_RETRY}) is not true or w.deleted is not null)`,
    { runId },
  );
}

/**
 * The webhooks with open deliveries in the run, and the group of each. Groups are assigned once and stored, so
 * repeated calls return the same. Shared groups are assigned by host: the webhooks of one host are retried together
 * over the same connections.
 */
export async function assignGroups(db: Db, runId: number): Promise<FailingWebhook[]> {
  await count(
    db,
    `insert into run_groups (run_id, webhook_id, group_number)
      select :runId::int, webhook_id,
        case when total <= :max::int - taken then taken + place
          when large then (taken + place - 1) % :own::int + 1
          else :own::int + 1 + ((row_number() over (partition by large order by target_url, webhook_id) - 1)
            * :shared::int / count(*) over (partition by large))::int end
      from (
        select *, place <= :own::int and deliveries * :max::int >= all_deliveries as large
        from (
          select d.webhook_id, w.target_url, count(*) as deliveries, sum(count(*)) over () as all_deliveries,
            row_number() over (order by count(*) desc, d.webhook_id)::int as place, count(*) over ()::int as total,
            (select coalesce(max(group_number), 0) from run_groups where run_id = :runId::int) as taken
          from retries d join webhooks w on w.id = d.webhook_id
          where d.run_id = :runId::int and ${HAS_RETRIES} and w.deleted is null
            and not exists (select from run_groups g where g.run_id = d.run_id and g.webhook_id = d.webhook_id)
          group by d.webhook_id, w.target_url
        ) fresh
      ) fresh
      on conflict do nothing`,
    { runId, max: MAX_GROUPS, own: OWN_GROUPS, shared: SHARED_GROUPS },
  );
  const found = await rows<{
    webhook_id: bigint;
    group_number: number;
    target_url: string;
    open: number;
    delay: number;
    is_probe: boolean;
  }>(
    db,
    `select o.webhook_id, g.group_number, w.target_url, o.open,
        greatest(0, extract(epoch from o.due - now()) * 1000)::float8 as delay, w.paused is not null as is_probe
      from (
        select webhook_id, count(*)::int as open, min(${DUE}) as due
        from retries t where run_id = :runId::int group by webhook_id
      ) o
      join run_groups g on g.run_id = :runId::int and g.webhook_id = o.webhook_id
      join webhooks w on w.id = o.webhook_id and ${HAS_RETRIES} and w.deleted is null
      order by g.group_number, o.webhook_id`,
    { runId },
  );
  return found.map((row) => ({
    webhookId: row.webhook_id,
    group: row.group_number,
    targetUrl: row.target_url,
    deliveries: row.open,
    delayMs: Math.ceil(row.delay ?? 0),
    isProbe: row.is_probe,
  }));
}

/** The status of a retry group. */
export interface GroupStatus {
  /** The number of open deliveries. */
  open: number;
  /** The time until the first of them is due, in milliseconds; 0 if one is due. */
  delayMs: number;
  /** Whether the group also has deliveries of paused or deleted webhooks, which do not count. */
  hasPaused: boolean;
}

/** The status of retry groups, in order; `open` is 0 if all deliveries of a group have ended, or their webhooks are paused. */
export async function groupStatuses(
  db: Db,
  groups: readonly { runId: number; group: number }[],
): Promise<GroupStatus[]> {
  const found = await rows<{ open: number; delay: number | null; paused: boolean }>(
    db,
    `select s.open, s.delay, exists (
        select from run_groups g cross join lateral (
          select w.paused, w.deleted from webhooks w where w.id = g.webhook_id offset 0
        ) w cross join lateral (
          select from retries t where t.run_id = g.run_id and t.webhook_id = g.webhook_id limit 1
        ) t
        where g.run_id = q.run_id and g.group_number = q.group_number and (w.paused is not null or w.deleted is not null)
      ) as paused
      from unnest(:runIds::int[], :groups::int[]) with ordinality as q(run_id, group_number, place)
      cross join lateral (
        select count(*)::int as open, (extract(epoch from min(d.due) - now()) * 1000)::float8 as delay
        from run_groups g cross join lateral (
          -- By its id alone: with the conditions, the planner may read the whole of a partial index.
          select w.paused, w.test_delivery, w.probe_attempts, w.deleted from webhooks w
          where w.id = g.webhook_id offset 0
        ) w cross join lateral (
          select ${DUE} as due from retries t where t.run_id = g.run_id and t.webhook_id = g.webhook_id and ${MAY_RETRY}
          -- Its own index probe for each webhook, whatever the planner takes the run's size for.
          offset 0
        ) d
        where g.run_id = q.run_id and g.group_number = q.group_number and w.deleted is null and ${HAS_RETRIES}
      ) s order by q.place`,
    { runIds: groups.map(({ runId }) => runId), groups: groups.map(({ group }) => group) },
  );
  return found.map(({ open, delay, paused }) => ({
    open,
    delayMs: Math.max(0, Math.ceil(delay ?? 0)),
    hasPaused: paused,
  }));
}
