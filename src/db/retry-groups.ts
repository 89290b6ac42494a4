import type { ClaimToken } from "./claim-statement.ts";
import type { Db } from "./database.ts";
import { count, rows } from "./database.ts";

/** A run has at most this many retry groups, so that its history stays small. */
export const MAX_GROUPS = 200;
/** When more webhooks fail, at most so many have a group of their own: those with a large part of the deliveries. */
const OWN_GROUPS = 150;
/** The others share so many. Each is an activity, which costs more than a delivery does. */
const SHARED_GROUPS = MAX_GROUPS - OWN_GROUPS;

/** One failing webhook within a run. */
export interface FailingWebhook {
  webhookId: bigint;
  group: number;
  targetUrl: string;
  /** Its open deliveries in the run. */
  deliveries: number;
  /** Milliseconds until those with the fewest attempts are due; 0 when they were never tried. */
  delayMs: number;
}

/**
 * The webhooks with open deliveries in the run, each with its group. Groups are given once and kept, so the answer
 * is the same when it is asked for again. Those that share groups do so by address: the webhooks of one host are
 * retried together, over the same connections.
 */
export async function assignGroups(db: Db, runId: bigint): Promise<FailingWebhook[]> {
  await count(
    db,
    `insert into run_groups (run_id, webhook_id, group_number)
      select :runId::bigint, webhook_id,
        case when total <= :max::int - taken then taken + place
          when large then (taken + place - 1) % :own::int + 1
          else :own::int + 1 + ((row_number() over (partition by large order by target_url, webhook_id) - 1)
            * :shared::int / count(*) over (partition by large))::int end
      from (
        select *, place <= :own::int and deliveries * :max::int >= all_deliveries as large
        from (
          select d.webhook_id, w.target_url, count(*) as deliveries, sum(count(*)) over () as all_deliveries,
            row_number() over (order by count(*) desc, d.webhook_id)::int as place, count(*) over ()::int as total,
            (select coalesce(max(group_number), 0) from run_groups where run_id = :runId::bigint) as taken
          from deliveries d join webhooks w on w.id = d.webhook_id
          where run_id = :runId::bigint and d.state in ('delivering', 'retrying')
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
  }>(
    db,
    `select o.webhook_id, g.group_number, w.target_url, o.open,
        case when o.level = 0 then 0 else greatest(0, extract(epoch from o.due - now()) * 1000)::float8 end as delay
      from (
        select webhook_id, count(*)::int as open, min(level) as level, max(retry_at) filter (where level = least) as due
        from (
          select webhook_id, retry_at, attempts - round_start as level,
            min(attempts - round_start) over (partition by webhook_id) as least
          from deliveries where run_id = :runId::bigint and state in ('delivering', 'retrying')
        ) d group by webhook_id
      ) o
      join run_groups g on g.run_id = :runId::bigint and g.webhook_id = o.webhook_id
      join webhooks w on w.id = o.webhook_id
      order by g.group_number, o.webhook_id`,
    { runId },
  );
  return found.map((row) => ({
    webhookId: row.webhook_id,
    group: row.group_number,
    targetUrl: row.target_url,
    deliveries: row.open,
    delayMs: Math.ceil(row.delay ?? 0),
  }));
}

/** A pass over a retry group. */
export interface Pass {
  token: ClaimToken;
  group: number;
}

/**
 * Gives retry groups to passes. Of several over one group, as when a worker that was taken for dead is not, the last
 * to begin has it, so that none takes from the other what that has just taken from it.
 */
export async function beginPasses(db: Db, passes: readonly Pass[]): Promise<void> {
  await count(
    db,
    `update run_groups g set pass_activity = p.activity, pass_attempt = p.attempt
      from unnest(:runIds::bigint[], :groups::int[], :activities::uuid[], :attempts::int[])
        as p(run_id, group_number, activity, attempt)
      where g.run_id = p.run_id and g.group_number = p.group_number
        -- An attempt that begins late, after a later one of the same activity, is replaced already.
        and (g.pass_activity = p.activity and g.pass_attempt > p.attempt) is not true`,
    {
      runIds: passes.map(({ token }) => token.runId),
      groups: passes.map(({ group }) => group),
      activities: passes.map(({ token }) => token.activity),
      attempts: passes.map(({ token }) => token.attempt),
    },
  );
}

/** Where a group stands. */
export interface GroupStatus {
  /** Open deliveries. */
  open: number;
  /** The fewest attempts any of them has in its round; 0 when one was never tried. */
  level: number;
  /** Milliseconds until the last of those with the fewest attempts is due. */
  delayMs: number;
}

/** What is open in retry groups, in their order; `open` is 0 when every delivery of one has come to an end. */
export async function groupStatuses(
  db: Db,
  groups: readonly { runId: bigint; group: number }[],
): Promise<GroupStatus[]> {
  const found = await rows<{ open: number; level: number | null; delay: number | null }>(
    db,
    `select s.open, s.level, s.delay
      from unnest(:runIds::bigint[], :groups::int[]) with ordinality as q(run_id, group_number, place)
      cross join lateral (
        select coalesce(sum(n), 0)::int as open, min(level) as level,
          (array_agg(extract(epoch from due - now()) * 1000 order by level))[1]::float8 as delay
        from (
          select d.attempts - d.round_start as level, count(*) as n, max(d.retry_at) as due
          from run_groups g cross join lateral (
            select attempts, round_start, retry_at from deliveries
            where run_id = g.run_id and webhook_id = g.webhook_id and state in ('delivering', 'retrying')
            -- Its own index probe for each webhook, whatever the planner takes the run's size for.
            offset 0
          ) d
          where g.run_id = q.run_id and g.group_number = q.group_number
          group by 1
        ) levels
      ) s order by q.place`,
    { runIds: groups.map(({ runId }) => runId), groups: groups.map(({ group }) => group) },
  );
  return found.map(({ open, level, delay }) => ({
    open,
    level: level ?? 0,
    delayMs: (level ?? 0) === 0 ? 0 : Math.max(0, Math.ceil(delay ?? 0)),
  }));
}
