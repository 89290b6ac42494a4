import { plainArray } from "./array-literal.ts";
import {
  allowances,
  CLAIM_CHOSEN,
  type ClaimResult,
  type ClaimRow,
  type ClaimToken,
  claimBindings,
  OPEN_RUN,
  SPEND_ALLOWANCES,
  toResult,
} from "./claim-statement.ts";
import { type Db, rows } from "./database.ts";

/** Webhooks visited by one claim, at most: each costs a look into the index. */
const WEBHOOKS = 512;

/**
 * Claims pending deliveries, oldest first within a webhook, fairly between webhooks: each that is visited and waits
 * gets the same share of `limit`, at least one.
 *
 * @param options.after webhooks are visited upwards from this id, so that the start can rotate
 * @param options.excluded webhooks that get nothing now
 * @returns also the webhook id to go on after, or null when the last webhook was visited
 */
export async function claimPending(
  db: Db,
  token: ClaimToken,
  options: { limit: number; after: bigint; excluded: readonly bigint[]; webhooks?: number },
): Promise<ClaimResult & { next: bigint | null }> {
  const found = await rows<ClaimRow & { next: bigint | null; limited: boolean }>(
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
    ), ${allowances("eligible")},
    chosen as (
      select d.place from open_run, allowed s cross join lateral (
        select ctid as place from deliveries where state = 'pending' and webhook_id = s.webhook_id order by created
        limit least(s.most, greatest(1, :limit::int / greatest(1, (select count(*)::int from eligible))))
        for update skip locked
      ) d limit :limit::int
    ), ${CLAIM_CHOSEN}, ${SPEND_ALLOWANCES}
    select c.*, v.next, exists (select from allowed where most is not null) as limited from (select case when count(webhook_id) = :webhooks::int then max(webhook_id) end as next from waiting) v
      left join claimed c on true order by c.id`,
    claimBindings(token, {
      after: options.after,
      excluded: plainArray(options.excluded),
      limit: options.limit,
      webhooks: Math.min(options.limit, options.webhooks ?? WEBHOOKS),
    }),
    { prepare: "claim_pending" },
  );
  const [first] = found;
  return {
    ...(await toResult(
      db,
      found.filter((row) => row.id !== null),
    )),
    limited: first?.limited ?? false,
    next: first?.next ?? null,
  };
}

/** Claims anew what an earlier attempt of the same activity had claimed and not brought to a result. */
export async function takeOver(db: Db, token: ClaimToken): Promise<ClaimResult> {
  const found = await rows<ClaimRow>(
    db,
    `with ${OPEN_RUN},
    chosen as (
      select d.ctid as place from open_run, deliveries d
      where d.run_id = open_run.id and d.state in ('delivering', 'retrying')
        and d.claim_activity = :activity::uuid and d.claim_attempt < :attempt::int
      order by d.id for update of d
    ), ${CLAIM_CHOSEN}
    select * from claimed order by id`,
    claimBindings(token, {}),
  );
  return toResult(db, found);
}

/** What a retry pass still has to try. */
const DUE = `d.run_id = :runId::bigint and d.state in ('delivering', 'retrying')
  and d.attempts - d.round_start = :level::int
  and (d.claim_activity, d.claim_attempt) is distinct from (:activity::uuid, :attempt::int)`;

/**
 * Claims the next entries of a retry group, those with the fewest attempts in their round only, so that one pass
 * brings stragglers level and never tries an entry twice. A pass that another has replaced claims nothing.
 *
 * @param options.level attempts in the round that an entry must have, as `groupStatus` tells
 */
export async function claimGroup(
  db: Db,
  token: ClaimToken,
  options: { group: number; level: number; limit: number; excluded: readonly bigint[] },
): Promise<ClaimResult> {
  const found = await rows<ClaimRow & { limited: boolean }>(
    db,
    `with ${OPEN_RUN},
    members as (
      -- One index probe a webhook. With "exists" the planner, as long as it takes the run for small, would join each
      -- webhook with all that is open in the run.
      select g.webhook_id from open_run, run_groups g
        cross join lateral (select from deliveries d where d.webhook_id = g.webhook_id and ${DUE} limit 1) due
      where g.run_id = open_run.id and g.group_number = :group::int
        and g.pass_activity = :activity::uuid and g.pass_attempt = :attempt::int
        and g.webhook_id <> all(:excluded::bigint[])
    ), ${allowances("members")},
    chosen as (
      select c.place from allowed s cross join lateral (
        select d.ctid as place from deliveries d where d.webhook_id = s.webhook_id and ${DUE}
        limit s.most for update of d
      ) c limit :limit::int
    ), ${CLAIM_CHOSEN}, ${SPEND_ALLOWANCES}
    select c.*, v.limited from (select exists (select from allowed where most is not null) as limited) v
      left join claimed c on true order by c.id`,
    claimBindings(token, {
      group: options.group,
      level: options.level,
      limit: options.limit,
      excluded: plainArray(options.excluded),
    }),
  );
  const result = await toResult(
    db,
    found.filter((row) => row.id !== null),
  );
  return { ...result, limited: found[0]?.limited ?? false };
}
