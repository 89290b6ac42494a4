import { webhookIn } from "../calls/index.ts";
import { count, type Db, rows, transactionWithRetry } from "../lib/pg/index.ts";
import { searchDeliveries, startRound } from "../log/index.ts";
import { readWaiting, type Waiting } from "../queue/index.ts";
import { lastIdOf, timeOfId } from "../schema/index.ts";
import { queueMissed } from "./backfill.ts";
import { noteQueued } from "./outcomes.ts";
import type { RunningReplay, Taken } from "./running.ts";

/**
 * The number of deliveries of a webhook that one step queues: it doubles while the endpoint takes them quickly. They are
 * older than the webhook's first attempts that wait at the same time, and are sent before them, so they must be few.
 */
const STEP = { min: 20, max: 500 };
/** A webhook that was busy with a step for less than this gets a larger one, in seconds. */
const QUICK_S = 1;
/** A webhook that was busy for longer gets a smaller one, in seconds. */
const SLOW_S = 5;
/** A webhook is behind if a first attempt has waited for longer, in seconds. */
const BEHIND_S = 2;
/**
 * The pause after a step of a webhook that is behind, as a multiple of the time for which it was busy with the last step:
 * it uses at most a quarter of its time for the replay.
 */
const BEHIND_PAUSE_FACTOR = 3;
/** The interval between looks at a webhook that is busy with its last step, in seconds. It grows with the wait. */
const LOOK_S = { min: 0.25, max: 10 };
/** The same for a paused webhook. */
const PAUSED_LOOK_S = { min: 5, max: 60 };
/** The pause between steps that concern all webhooks, in seconds. */
const STEP_OVER_ALL_S = 1;
/** The pause while a webhook has as many pending deliveries as it may have, in seconds. */
const FULL_LOOK_S = 1;
/** The pause before newer events are looked for, in seconds. */
const UNSETTLED_LOOK_S = 1;
/** The maximum number of webhooks that one statement looks at. */
const MAX_LOOKS = 200;
/** The maximum number of webhooks that one statement lists. */
const MAX_LISTED = 1_000;

/**
 * Lists the next webhooks that a replay concerns: those with a delivery in the time range and in one of the states.
 *
 * @returns the number of webhooks examined; fewer than 1,000 if none is left
 */
export async function listWebhooksOf(
  db: Db,
  { id, filter, scope, fromId, toId }: RunningReplay,
): Promise<number> {
  // Each state has its own index, which only a constant finds. Evaluated per webhook: a join would read all rows.
  const has = filter.states.map(
    (state) => `exists (select from deliveries d where d.webhook_id = w.id and d.outcome = '${state}'
      and d.id >= :fromId::uuid and d.id < :toId::uuid offset 0)`,
  );
  const inScope = webhookIn(scope, "w");
  const [listed] = await rows<{ examined: number }>(
    db,
    `with next as materialized (
        select w.id, w.deleted from webhooks w
        where w.id > (select listed_to from replays where id = :id::uuid)
          and (:process::int is null or w.process = :process::int)
          and ${inScope.sql}
        order by w.id limit ${MAX_LISTED}
      ),
      made as (
        insert into replay_webhooks (replay_id, webhook_id, step, before_step, after_step)
        select :id::uuid, w.id, ${STEP.min}, :fromId::uuid, :fromId::uuid from next w
        where w.deleted is null and (${has.join(" or ")})
        on conflict do nothing
      ),
      examined as (select count(*)::int as n, max(id) as last from next)
      update replays r set listed_to = case when e.n = ${MAX_LISTED} then e.last end
      from examined e where r.id = :id::uuid and r.listed_to is not null returning e.n as examined`,
    {
      id,
      fromId,
      toId,
      process: filter.process ?? null,
      ...inScope.bindings,
    },
  );
  return listed?.examined ?? 0;
}

/** The interval to the next look, growing with the time since the last step. */
const nextLook = ({ min, max }: { min: number; max: number }) =>
  `now() + make_interval(secs => greatest(${min}, least(${max}, extract(epoch from now() - p.stepped) / 4)))`;

/**
 * Looks at webhooks of a replay that are due: whether their last step was attempted.
 *
 * @returns those whose next step may begin, at most 200; and whether there may be more
 */
export async function findReady(db: Db, replayId: string): Promise<{ ready: bigint[]; more: boolean }> {
  const found = await rows<{ webhookId: bigint; ready: boolean }>(
    db,
    `with due as materialized (
        select p.webhook_id, p.before_step, p.after_step from replay_webhooks p
        where p.replay_id = :replayId::uuid and p.ended is null and p.due <= now()
        order by p.due limit ${MAX_LOOKS} for update skip locked
      ),
      seen as (
        select d.webhook_id, coalesce(w.paused is not null and w.deleted is null, false) as paused,
          -- After a backfill, the place is the id of an event, and its delivery's may be larger.
          exists (select from queue q where q.webhook_id = d.webhook_id and q.id > d.before_step
            and q.id <= ${lastIdOf("d.after_step")}) as busy
        from due d left join webhooks w on w.id = d.webhook_id
      ),
      later as (
        update replay_webhooks p set waiting = s.paused, busy_at = case when s.busy then now() else p.busy_at end,
          due = case when s.paused then ${nextLook(PAUSED_LOOK_S)} when s.busy then ${nextLook(LOOK_S)} else p.due end
        from seen s where p.replay_id = :replayId::uuid and p.webhook_id = s.webhook_id
          and (s.paused or s.busy or p.waiting)
      )
      select webhook_id as "webhookId", not paused and not busy as ready from seen`,
    { replayId },
  );
  return {
    ready: found.filter(({ ready }) => ready).map(({ webhookId }) => webhookId),
    more: found.length === MAX_LOOKS,
  };
}

/** Limits of steps. */
export interface StepLimits {
  /** Older deliveries and events are not queued. */
  retentionDays: number;
  /** The age from which an event counts as stored, in milliseconds: a publish may be in progress before. */
  settledMs: number;
  /** The maximum number of pending deliveries of a webhook, beyond which the newest fail. Defaults to 0, for no limit. */
  maxPending?: number;
}

/** A step of a webhook. */
export interface Step {
  /** The number of deliveries queued. */
  queued: number;
  /** Whether first attempts of the webhook have waited for more than two seconds. */
  behind: boolean;
}

/**
 * Queues the next deliveries of a webhook, oldest first, and moves its place in one transaction. Does nothing if it is not
 * due, another activity does it, the webhook has `maxPending` deliveries or its customer as many as its quota, or the replay was paused or ended.
 *
 * @returns undefined if the place was not moved
 */
export function stepWebhook(
  db: Db,
  replay: RunningReplay,
  webhookId: bigint,
  limits: StepLimits,
): Promise<Step | undefined> {
  return transactionWithRetry(db, async (trx) => {
    const { id } = replay;
    const { maxPending = 0 } = limits;
    const place = await lockPlace(trx, id, webhookId);
    if (!place) return undefined;
    const waiting = await readWaiting(trx, webhookId, { limit: maxPending, after: place.after });
    const ofWebhook = maxPending === 0 ? STEP.max : maxPending - waiting.pending;
    const room = Math.min(ofWebhook, waiting.customerRoom ?? STEP.max);
    if (room <= 0) return lookLater(trx, id, webhookId);
    const size = Math.min(nextStep(place, waiting), room);
    const behind = (waiting.oldestS ?? 0) > BEHIND_S;
    const take = replay.kind === "resend" ? resend : queueMissed;
    const taken = await take(trx, replay, webhookId, place.after, size, limits);
    const queued = taken.queued.length;
    await noteQueued(trx, id, taken.queued);
    await count(
      trx,
      `update replay_webhooks set after_step = coalesce(:to::uuid, after_step),
          before_step = case when :queued::int > 0 then after_step else coalesce(:to::uuid, after_step) end,
          ended = case when :to::uuid is null then now() end, step = :size::int, queued = queued + :queued::int,
          skipped = skipped + :skipped::int, stepped = now(), busy_at = null, waiting = false,
          due = now() + make_interval(secs => :pause::float8)
        where replay_id = :id::uuid and webhook_id = :webhookId::bigint`,
      {
        id,
        webhookId,
        to: taken.examinedTo,
        size,
        queued,
        skipped: taken.skipped,
        pause: pauseAfter(webhookId, place, behind, taken),
      },
    );
    return { queued, behind };
  });
}

/** Looks at a webhook again once it may have room. */
async function lookLater(trx: Db, id: string, webhookId: bigint): Promise<undefined> {
  await count(
    trx,
    `update replay_webhooks set due = now() + make_interval(secs => ${FULL_LOOK_S})
      where replay_id = :id::uuid and webhook_id = :webhookId::bigint`,
    { id, webhookId },
  );
}

/** The position at which a webhook's next step begins. */
interface Place {
  after: string;
  /** The size of the last step. */
  step: number;
  /** The time for which the webhook was busy with it, in seconds; null before the first step. */
  busyS: number | null;
}

/** Locks the position if the replay runs and no other activity works on it. */
async function lockPlace(trx: Db, id: string, webhookId: bigint): Promise<Place | undefined> {
  const [place] = await rows<Place>(
    trx,
    // The replay is locked before its webhooks, as by statements that end it.
    `with running as materialized (
        select id from replays where id = :id::uuid and paused is null and ended is null for share
      )
      select p.after_step as after, p.step,
        case when p.after_step > p.before_step then extract(epoch from coalesce(p.busy_at, p.stepped) - p.stepped)::float8
          end as "busyS"
      from running r join replay_webhooks p on p.replay_id = r.id
      where p.webhook_id = :webhookId::bigint and p.ended is null and p.due <= now()
      for update of p skip locked`,
    { id, webhookId },
  );
  return place;
}

function nextStep({ step, busyS }: Place, { oldestS }: Waiting): number {
  // Other deliveries of the webhook wait for their first attempt.
  if (oldestS !== null) return STEP.min;
  if (busyS === null) return step;
  if (busyS <= QUICK_S) return Math.min(STEP.max, step * 2);
  return busyS > SLOW_S ? Math.max(STEP.min, Math.floor(step / 2)) : step;
}

/** The pause before the next look, in seconds. */
function pauseAfter(webhookId: bigint, { busyS }: Place, behind: boolean, { queued, waits }: Taken): number {
  if (waits) return UNSETTLED_LOOK_S;
  if (webhookId === 0n) return STEP_OVER_ALL_S;
  if (queued.length === 0) return 0;
  return behind ? BEHIND_PAUSE_FACTOR * Math.max(LOOK_S.min, busyS ?? 0) : LOOK_S.min;
}

/** Queues ended deliveries again. */
async function resend(
  trx: Db,
  { scope, filter, fromId, toId }: RunningReplay,
  webhookId: bigint,
  after: string,
  size: number,
  { retentionDays }: StepLimits,
): Promise<Taken> {
  const { search, ...rest } = filter;
  const only = webhookId === 0n ? {} : { webhookId };
  const range = { from: timeOfId(fromId), to: timeOfId(toId), after };
  const page = await searchDeliveries(trx, scope, { ...rest, ...only, ...range }, size, search);
  const ids = page.deliveries.map(({ id }) => id);
  const again = ids.length === 0 ? [] : await startRound(trx, scope, ids, retentionDays);
  return {
    queued: again,
    skipped: ids.length - again.length,
    examinedTo: ids.length === size ? (ids[0] as string) : page.searchedTo,
    waits: false,
  };
}
