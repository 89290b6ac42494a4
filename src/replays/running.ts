import type { Owned, Scope } from "../calls/index.ts";
import { count, type Db, rows, run, transactionWithRetry } from "../lib/pg/index.ts";
import { type ReplayRow, replayScope, sumUp, toFilter } from "./replays.ts";

/** A replay that an activity works on. */
export interface RunningReplay {
  id: string;
  kind: ReplayRow["kind"];
  scope: Scope;
  filter: ReplayRow["filter"];
  fromId: string;
  toId: string;
  /** The webhook up to which all are listed; null once all are. */
  listedTo: bigint | null;
}

/**
 * Loads a replay, and stores that an activity works on it.
 *
 * @returns undefined if it is paused, has ended or does not exist
 */
export async function keepReplay(db: Db, id: string): Promise<RunningReplay | undefined> {
  const [found] = await rows<
    Omit<RunningReplay, "scope" | "filter"> &
      Owned & { filter: Parameters<typeof toFilter>[0]; processes: number[] }
  >(
    db,
    `update replays set active = now() where id = :id::uuid and ended is null and paused is null
      returning id, kind, filter, from_id as "fromId", to_id as "toId", listed_to as "listedTo",
        customer, installed_app_id as "installedAppId", processes`,
    { id },
  );
  if (!found) return undefined;
  const { customer, installedAppId, processes, filter, ...replay } = found;
  return { ...replay, filter: toFilter(filter), scope: replayScope({ customer, installedAppId, processes }) };
}

/** The result of a step. */
export interface Taken {
  /** The ids of the deliveries queued. */
  queued: readonly string[];
  /** The number of deliveries or events that cannot be delivered any more. */
  skipped: number;
  /** The id up to which all were examined; null if none is left. */
  examinedTo: string | null;
  /** Whether the rest is too new to be examined. */
  waits: boolean;
}

/**
 * Ends a replay that has nothing left to do.
 *
 * @returns whether it ended
 */
export function endReplay(db: Db, id: string): Promise<boolean> {
  return transactionWithRetry(db, async (trx) => {
    const ended = await count(
      trx,
      `update replays r set ended = now() where r.id = :id::uuid and r.ended is null and r.paused is null
        and r.listed_to is null
        and not exists (select from replay_webhooks p where p.replay_id = r.id and p.ended is null)`,
      { id },
    );
    if (ended > 0) await sumUp(trx, [id]);
    return ended > 0;
  });
}

/** The time for which pumps wait for a replay after an activity has worked on it, in seconds. */
const ACTIVE_S = 15;

/** Whether a replay is likely to queue deliveries soon: one runs, of a webhook that is not paused. */
export async function isReplaying(db: Db): Promise<boolean> {
  const [found] = await rows<{ replaying: boolean }>(
    db,
    `select exists (
        select from replays r where r.ended is null and r.paused is null
          and r.active > now() - make_interval(secs => ${ACTIVE_S})
          and (r.listed_to is not null
            or exists (select from replay_webhooks p where p.replay_id = r.id and p.ended is null and not p.waiting))
      ) as replaying`,
  );
  return found?.replaying ?? false;
}

/** The maximum number of replays of customers that activities work on. The others wait their turn, oldest first. */
const MAX_OF_CUSTOMERS = 60;

/** SQL for whether no activity works on a replay that should run. */
const IS_IDLE = `ended is null and paused is null
  and (active is null or active < now() - make_interval(secs => :idleSeconds::float8))`;

/** A replay that no activity works on. */
export interface IdleReplay {
  id: string;
  /** The replayed deliveries in words, without values of a search. */
  outline: string;
}

/**
 * Replays that no activity has worked on for a time, because they are new or resumed, or their workflow was terminated.
 * Each is returned to one caller until that time has passed again.
 *
 * @param idleMs the time, in milliseconds
 */
export async function claimIdleReplays(db: Db, idleMs: number): Promise<IdleReplay[]> {
  const found = await rows<{
    id: string;
    kind: ReplayRow["kind"];
    webhook: string | null;
    from: Date;
    to: Date;
  }>(
    db,
    `update replays r set active = now() where r.id = any(array(
        select id from replays where ${IS_IDLE} and (customer is null or id = any(array(
          select id from replays where customer is not null and ${IS_IDLE} order by id
          limit greatest(0, ${MAX_OF_CUSTOMERS} - (
            select count(*) from replays where customer is not null and ended is null and paused is null and not (${IS_IDLE})))
        )))
        limit 100 for update skip locked))
      returning r.id, r.kind, time_of_id(r.from_id) as "from", time_of_id(r.to_id) as "to",
        (select '#' || w.id || ' ' || split_part(w.target_url, '/', 3) from webhooks w
          where w.id = (r.filter ->> 'webhookId')::bigint) as webhook`,
    { idleSeconds: idleMs / 1_000 },
  );
  return found.map(({ id, kind, webhook, from, to }) => {
    const what = kind === "resend" ? "ended deliveries" : "missed events";
    return {
      id,
      outline: `${what} of ${webhook ?? "several webhooks"}, ${from.toISOString()} to ${to.toISOString()}`,
    };
  });
}

/** Lets a replay be claimed again at once, because its workflow could not be started. */
export async function giveBackReplay(db: Db, id: string): Promise<void> {
  await run(db, db("replays").where({ id }).update({ active: null }));
}

/** Stores the workflow of a replay, for links to the Temporal UI. */
export async function noteReplayStarted(
  db: Db,
  id: string,
  { workflowId, runId }: { workflowId: string; runId: string },
): Promise<void> {
  await run(db, db("replays").where({ id }).update({ workflow_id: workflowId, run_id: runId }));
}
