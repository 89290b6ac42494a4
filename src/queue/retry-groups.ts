import { count, type Db, plainArray, rows } from "../lib/pg/index.ts";
import { distinctOf, ratePerSecond, retriesOf } from "./conditions.ts";
import { paceOf } from "./holds.ts";

/**
 * The maximum number of webhooks with a retry group of their own, over all open runs: those with the most retries when a run chooses
 * groups. Open runs divide this number, because each group is a Temporal activity, which costs more than a delivery, and a run may wait
 * for retries for an hour while many others begin.
 */
const OWN_GROUPS = 20;
/** The maximum number of hosts whose other webhooks share a retry group per host. Divided like `OWN_GROUPS`. */
const HOST_GROUPS = 20;
/** The number of groups of each kind, per webhook and per host, that every run may have, however many runs divide them. */
const MIN_GROUPS = 2;
/** The maximum number of retry groups of a run; also the number of the group of all other webhooks. Earlier releases had up to 200. */
export const MAX_GROUPS = OWN_GROUPS + HOST_GROUPS + 1;
/**
 * SQL for the time from which a row of `retries t` can be sent: it is due, and the lease of the worker that has claimed it, if any, has
 * expired. Its webhook may have to wait longer: see `OPENS`.
 */
const DUE = `greatest(t.due, (select lease_until from workers w where w.id = t.claimed_by))`;
/** SQL for the rate of webhook `w`, in deliveries a second: the lower one of rate limit and pace; null for none. */
const RATE = `least(${ratePerSecond("w")}, ${paceOf("w")})`;
/**
 * SQL for the time from which webhook `w` may get retries: when its receiver wants requests again and, at a rate of less than one delivery a
 * second, when its bucket has a token. Null for any time. Reads the bucket by id.
 */
const OPENS = `greatest(w.held_until, case when ${RATE} < 1 then (
    -- The clock of the database may have been set back.
    select least(b.rate_at, now()) + interval '1 second' * greatest(0, (1 - b.rate_tokens) / ${RATE}) from (
      select w.rate_at, w.rate_tokens where w.endpoint_id is null
      union all select e.rate_at, e.rate_tokens from endpoints e where e.id = w.endpoint_id
    ) b
  ) end)`;
/** SQL for the milliseconds until a time; 0 if the time has passed or is null. */
const untilDue = (due: string) => `ceil(greatest(0, extract(epoch from ${due} - now()) * 1000))::float8`;
/**
 * SQL for whether retry `t` of webhook `w` may be sent: the webhook is not paused, or the retry is the probe of its circuit breaker.
 * `probe_attempts` permits one attempt of the probe only. With "or" instead of "case", the planner would expect few matches, and sort all
 * retries of the webhook.
 */
export const MAY_RETRY =
  "case when w.paused is null then true else t.id = w.test_delivery and t.attempts = w.probe_attempts end";
/** SQL for whether any retry of webhook `w` may be sent: the webhook is not paused, or a retry is the probe of its circuit breaker. */
export const HAS_RETRIES = "(w.paused is null or w.probe_attempts is not null)";

/** A webhook with retries in a run. */
export interface FailingWebhook {
  webhookId: bigint;
  group: number;
  /** Host and port of its URL. */
  host: string;
  /** The number of its retries in the run. */
  deliveries: number;
  /** The time until the first of them can be sent, in milliseconds; 0 if one can be sent now. A rate limit may delay it. */
  delayMs: number;
  /** Whether the webhook is paused, and the retry that may be sent is the probe of its circuit breaker. */
  isProbe: boolean;
  /**
   * The status and error of the last attempt of its latest retry, such as `503` or `410, webhook disabled`. Null unless the webhook has
   * the most retries of its group.
   */
  lastError?: string | null;
}

/** The maximum number of retries that `adoptRetries` assigns per call: of those without a run, and of each closed run. */
export const MAX_ADOPTED_PER_STEP = 10_000;

/**
 * SQL that joins the webhook of a row as `w`, looked up by id. With a plain join, a planner without statistics would combine all webhooks
 * with each retry: three million pairs for 1,500 retries and 2,000 webhooks.
 */
export const webhookOf = (row: string) =>
  `cross join lateral (select w.* from webhooks w where w.id = ${row}.webhook_id offset 0) w`;

/**
 * SQL for the groups `q` and their webhooks `g`. Makes one index lookup per group, whatever sizes of the tables the planner assumes. The
 * bindings are in subqueries, so that their values have no effect on the plan.
 */
export const GROUP_WEBHOOKS = `
  unnest((select :runIds::int[]), (select :groups::int[])) with ordinality as q(run_id, group_number, place)
  cross join lateral (
    select g.webhook_id from run_groups g where g.run_id = q.run_id and g.group_number = q.group_number offset 0
  ) g`;

const adoptable = (ofRun: string) => `
  select t.ctid as place from retries t ${webhookOf("t")}
  where ${ofRun} and ${MAY_RETRY} and w.deleted is null and t.due < now() + interval '1 millisecond' * :aheadMs::float8
  order by t.run_id, t.webhook_id, t.due limit :most::int for update of t skip locked`;

/**
 * Assigns a run the retries that are due soon and have no run or a closed one: their delay was longer than retries stay in a run, their
 * run was cancelled, the run's lease expired, or their webhook was paused and is resumed or may send a probe.
 *
 * @param aheadMs the time within which they are due, in milliseconds. Defaults to a minute
 * @returns the number of retries
 */
export async function adoptRetries(db: Db, runId: number, aheadMs = 60_000): Promise<number> {
  return count(
    db,
    `with recursive ${distinctOf("known", "run_id", "retries", { where: "run_id is not null" })},
      -- Materialized: otherwise the planner may read and lock retries of open runs.
      closed as materialized (
        -- The row of a closed run may have been deleted.
        select known.run_id from known left join runs r on r.id = known.run_id
        where known.run_id is not null and (r.id is null or r.closed is not null)
      ),
      -- One index lookup per webhook, so that the many retries of paused webhooks are not read.
      ${distinctOf("lost", "webhook_id", "retries", { where: "run_id is null", order: "run_id, webhook_id" })},
      orphans as (
        select t.place from lost ${webhookOf("lost")}
          cross join lateral (${adoptable("t.run_id is null and t.webhook_id = lost.webhook_id")}) t
        where ${HAS_RETRIES} and w.deleted is null limit :most::int
      ),
      left_over as (
        select t.place from closed cross join lateral (${adoptable("t.run_id = closed.run_id")}) t
      ),
      chosen as (select place from orphans union all select place from left_over)
      update retries set run_id = :runId::int where ctid = any(array(select place from chosen))`,
    { runId, most: MAX_ADOPTED_PER_STEP, aheadMs },
  );
}

/** Removes the retries of paused and deleted webhooks from a run, so that the run can close. Probes stay. Returns their number. */
export async function leavePaused(db: Db, runId: number): Promise<number> {
  return count(
    db,
    `update retries t set run_id = null from webhooks w
      where t.run_id = :runId::int and w.id = t.webhook_id and ((${MAY_RETRY}) is not true or w.deleted is not null)`,
    { runId },
  );
}

/**
 * Assigns retry groups to the webhooks with retries in a run, and returns the webhooks in the order of their groups. A group is assigned
 * once and stored, so repeated calls return the same groups. Leaves out paused webhooks without a probe, and deleted ones.
 */
export async function assignGroups(db: Db, runId: number): Promise<FailingWebhook[]> {
  const failing = await listFailing(db, runId);
  const fresh = failing.filter(({ group }) => group === null);
  if (fresh.length === 0) return failing as FailingWebhook[];
  const hosts = failing.flatMap(({ group, host }) => (group === null ? [] : [[group, host] as const]));
  const otherRuns = await count(
    db,
    `select from runs r where r.closed is null and r.id <> :runId::int
      and exists (select from run_groups g where g.run_id = r.id)`,
    { runId },
  );
  const chosen = chooseGroups(fresh, new Map(hosts), otherRuns + 1);
  const webhookIds = plainArray([...chosen.keys()].map(({ webhookId }) => webhookId));
  await count(
    db,
    `insert into run_groups (run_id, webhook_id, group_number)
      select :runId::int, webhook_id, group_number
      from unnest(:webhookIds::bigint[], :groups::int[]) as g(webhook_id, group_number)
      on conflict do nothing`,
    { runId, webhookIds, groups: plainArray([...chosen.values()]) },
  );
  // Reads the groups again: another process may have assigned some first.
  return assignGroups(db, runId);
}

type Listed = Omit<FailingWebhook, "group"> & { group: number | null };

/** The webhooks with retries in a run; null as the group if none is assigned. Reads one last error per group. */
function listFailing(db: Db, runId: number): Promise<Listed[]> {
  return rows<Listed>(
    db,
    `select o."webhookId", o.group, o.host, o.deliveries, o."delayMs", o."isProbe", l."lastError" from (
        select o.webhook_id as "webhookId", g.group_number as group, split_part(w.target_url, '/', 3) as host, o.open as deliveries,
          ${untilDue(`greatest(o.due, ${OPENS})`)} as "delayMs", w.paused is not null as "isProbe",
          row_number() over (partition by g.group_number order by o.open desc, o.webhook_id) as place
        from (
          select webhook_id, count(*)::int as open, min(${DUE}) as due
          from retries t where run_id = :runId::int group by webhook_id
        ) o
        ${webhookOf("o")}
        left join run_groups g on g.run_id = :runId::int and g.webhook_id = o.webhook_id
        where ${HAS_RETRIES} and w.deleted is null
      ) o
      left join lateral (
        select (
            select nullif(concat_ws(', ', a.status, a.error), '')
            from attempts a where a.delivery_id = t.id and a.number = t.attempts limit 1
          ) as "lastError"
        from retries t where o.place = 1 and ${retriesOf(":runId::int", 'o."webhookId"', "'infinity'::timestamptz")}
        order by t.run_id desc, t.webhook_id desc, t.due desc limit 1
      ) l on true
      order by o.group, o."webhookId"`,
    { runId },
  );
}

/**
 * Chooses groups for webhooks without one. Those with the most retries get a group of their own, the others one per host, as long as
 * group numbers are free. The rest gets the last group.
 *
 * @param taken the groups of the run that have retries, by number, with the host of one of their webhooks
 * @param runs the number of open runs with retry groups, this run included, which divide the group numbers
 */
export function chooseGroups<T extends Pick<FailingWebhook, "host" | "deliveries">>(
  fresh: readonly T[],
  taken: ReadonlyMap<number, string>,
  runs: number,
): Map<T, number> {
  const free = (from: number, groups: number) =>
    Array.from({ length: Math.max(MIN_GROUPS, Math.floor(groups / runs)) }, (_, n) => from + n).filter(
      (group) => !taken.has(group),
    );
  const own = free(1, OWN_GROUPS);
  const shared = free(OWN_GROUPS + 1, HOST_GROUPS);
  const groupOf = new Map<string, number>();
  for (const [group, host] of taken) if (group > OWN_GROUPS && group < MAX_GROUPS) groupOf.set(host, group);
  const sorted = fresh.toSorted((one, other) => other.deliveries - one.deliveries);
  const hosts = [...Map.groupBy(sorted.slice(own.length), ({ host }) => host)].toSorted(
    ([, one], [, other]) => sumOf(other) - sumOf(one),
  );
  for (const [host] of hosts) if (!groupOf.has(host)) groupOf.set(host, shared.shift() ?? MAX_GROUPS);
  return new Map(sorted.map((webhook, n) => [webhook, own[n] ?? (groupOf.get(webhook.host) as number)]));
}

const sumOf = (webhooks: readonly { deliveries: number }[]) =>
  webhooks.reduce((sum, { deliveries }) => sum + deliveries, 0);

/** A retry group of a run. */
export interface GroupKey {
  runId: number;
  group: number;
}

/** The status of a retry group. */
export interface GroupStatus {
  /** The number of retries that may be sent, due or not. */
  open: number;
  /** The time until the first of them can be sent, in milliseconds; 0 if one can be sent now. */
  delayMs: number;
}

/**
 * Returns the status of retry groups, in the order of `groups`. `open` is 0 if all deliveries of a group have ended, or their webhooks are
 * paused or deleted. Removes the retries of such webhooks from the runs, as `leavePaused` does.
 */
export async function settleGroups(db: Db, groups: readonly GroupKey[]): Promise<GroupStatus[]> {
  const found = await rows<GroupStatus & { place: number }>(
    db,
    `with grouped as materialized (
        select q.place, q.run_id, g.webhook_id, w.paused, w.test_delivery, w.probe_attempts, w.deleted, ${OPENS} as opens
        from ${GROUP_WEBHOOKS} ${webhookOf("g")}
      ),
      leaving as (
        update retries set run_id = null where ctid = any(array(
          select t.ctid from grouped w cross join lateral (
            select t.ctid from retries t where t.run_id = w.run_id and t.webhook_id = w.webhook_id
              and ((${MAY_RETRY}) is not true or w.deleted is not null) for update skip locked
          ) t where w.paused is not null or w.deleted is not null
        ))
      )
      select w.place::int, count(*)::int as open, ${untilDue("min(t.due)")} as "delayMs"
      from grouped w cross join lateral (
        select greatest(${DUE}, w.opens) as due from retries t
        where t.run_id = w.run_id and t.webhook_id = w.webhook_id and ${MAY_RETRY} offset 0
      ) t
      where w.deleted is null and ${HAS_RETRIES} group by 1`,
    { runIds: groups.map(({ runId }) => runId), groups: groups.map(({ group }) => group) },
  );
  const statuses = new Map(found.map(({ place, ...status }) => [place, status]));
  return groups.map((_, n) => statuses.get(n + 1) ?? { open: 0, delayMs: 0 });
}
