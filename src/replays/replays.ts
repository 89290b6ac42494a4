import { type Condition, type Owned, ownedIn, type Scope, scopeOf } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
import { count, type Db, databaseTime, rows, run } from "../lib/pg/index.ts";
import type { DeliveryStateName, SearchText } from "../log/index.ts";
import { firstIdOf, takeLock } from "../schema/index.ts";

/** The deliveries or events that a replay was requested for. Omitted fields do not restrict. */
export interface ReplayFilter {
  webhookId?: bigint | undefined;
  /** The number of the WebhookProcess. */
  process?: number | undefined;
  eventId?: string | undefined;
  /** Final states. Empty for a backfill. */
  states: readonly DeliveryStateName[];
  search?: SearchText | undefined;
  /** The customer whose deliveries alone are sent. */
  customer?: string | undefined;
  /** The earliest time, inclusive. */
  from?: Date | undefined;
  /** The latest time, exclusive. Defaults to the start of the replay. */
  to?: Date | undefined;
}

/** A replay to start. */
export interface NewReplay {
  apiKeyId: string;
  /** Null for none. */
  idempotencyKey: string | null;
  /** `resend` queues ended deliveries again, `backfill` events that a webhook has no delivery of. */
  kind: "resend" | "backfill";
  filter: ReplayFilter;
}

/** A stored replay, with its progress. */
export interface ReplayRow extends Owned {
  id: string;
  kind: NewReplay["kind"];
  filter: ReplayFilter;
  state: "running" | "paused" | "completed" | "cancelled";
  created: Date;
  ended: Date | null;
  queued: bigint;
  /** The deliveries of these that were delivered, those that failed, and those that have not ended, as counted last. */
  delivered: bigint;
  failed: bigint;
  open: bigint;
  skipped: bigint;
  /** The examined part of the time range, over all webhooks, from 0 to 1. */
  progress: number;
  /** The number of webhooks known so far. */
  webhooks: number;
  /** The number of paused webhooks. */
  waiting: number;
  workflowId: string | null;
  runId: string | null;
}

/** The number of deliveries of the first step of a webhook. */
const FIRST_STEP = 20;

/** SQL for the time in an id, in seconds since 1970. */
const SECONDS_OF = (id: string) => `extract(epoch from time_of_id(${id}))`;

const STATE = `case when r.cancelled then 'cancelled' when r.ended is not null then 'completed'
  when r.paused is not null then 'paused' else 'running' end`;

const COLUMNS = `r.id, r.kind, r.filter, ${STATE} as state, r.created, r.ended, r.workflow_id as "workflowId",
  r.run_id as "runId", r.customer, r.installed_app_id as "installedAppId", p.waiting, o.*, r.queued + p.queued as queued,
  r.skipped + p.skipped as skipped, r.webhooks + p.webhooks as webhooks,
  case when r.ended is not null and not r.cancelled then 1 when r.listed_to is not null then 0
    else coalesce(p.progress, 0) end as progress`;

/** Joins the sums over an open replay's webhooks, of which an ended one has none, and the outcomes of what it has queued. */
const SUMS = `cross join lateral (
    select coalesce(sum(p.queued), 0)::bigint as queued, coalesce(sum(p.skipped), 0)::bigint as skipped,
      count(*)::int as webhooks, count(*) filter (where p.waiting and p.ended is null)::int as waiting,
      avg(case when p.ended is not null then 1 else least(1, greatest(0,
        (${SECONDS_OF("p.after_step")} - ${SECONDS_OF("r.from_id")})
          / greatest(0.001, ${SECONDS_OF("r.to_id")} - ${SECONDS_OF("r.from_id")}))) end)::float8 as progress
    from replay_webhooks p where p.replay_id = r.id
  ) p cross join lateral (
    select coalesce(sum(s.delivered), 0)::bigint as delivered, coalesce(sum(s.failed), 0)::bigint as failed,
      coalesce(sum(cardinality(s.open)), 0)::bigint as open
    from replay_steps s where s.replay_id = r.id
  ) o`;

/** `Scope` of the key that started a replay. */
export function replayScope({ processes, ...owner }: Owned & { processes: readonly number[] }): Scope {
  return scopeOf({ ...owner, allowedProcesses: processes, permissions: [] });
}

/** The replays that a scope can see: those of its customer and installed app, if they were started with no wider scope. */
function replayIn(scope: Scope): Condition {
  if (scope === "everything") return { sql: "true", bindings: {} };
  const owned = ownedIn(scope, "r");
  return {
    sql: `${owned.sql} and (cardinality(:scopeProcesses::int[]) = 0
      or (cardinality(r.processes) > 0 and r.processes <@ :scopeProcesses::int[]))`,
    bindings: { ...owned.bindings, scopeProcesses: [...scope.processes] },
  };
}

/**
 * Stores a replay, which the workers then start. Does nothing if the key has used the idempotency key before. Requires a
 * transaction, to whose end a revocation of the key waits: it then cancels the replay.
 *
 * @param now the end of the time range if none was requested. Defaults to now by the database's clock, which ids are made by
 * @returns the id, also of the earlier replay; its request is `same` unless it differs
 * @throws DomainError UNAUTHENTICATED if the key was revoked in the meantime
 */
export async function insertReplay(
  trx: Db,
  scope: Scope,
  { apiKeyId, idempotencyKey, kind, filter }: NewReplay,
  retentionDays: number,
  now?: Date,
): Promise<{ id: string; duplicate: boolean; same: boolean }> {
  const end = now ?? (await databaseTime(trx));
  const oldest = new Date(end.getTime() - retentionDays * 86_400_000);
  const from = filter.from && filter.from > oldest ? filter.from : oldest;
  const to = filter.to && filter.to < end ? filter.to : end;
  // Deliveries of an event or a search may belong to any webhook, and are few.
  const oneByOne = filter.eventId === undefined && filter.search === undefined;
  const webhookId = filter.webhookId ?? (oneByOne ? null : 0n);
  const active = trx("api_keys").select("id").where({ id: apiKeyId, revoked: null }).forShare();
  if ((await run(trx, active)).length === 0)
    throw new DomainError("API_KEY_UNKNOWN", "the API key was revoked; use another key");
  const stored = JSON.stringify(filter, (_, value) => (typeof value === "bigint" ? String(value) : value));
  const [made] = await rows<{ id: string }>(
    trx,
    `with made as (
        insert into replays (api_key_id, idempotency_key, customer, installed_app_id, processes, kind, filter, from_id, to_id, listed_to)
        values (:apiKeyId::uuid, :idempotencyKey::text, :customer::text, :app::uuid, :processes::int[], :kind::text, :filter::jsonb,
          :fromId::uuid, :toId::uuid, case when :webhookId::bigint is null then 0 end)
        on conflict (api_key_id, idempotency_key) where idempotency_key is not null do nothing returning id, from_id
      ),
      webhook as (
        insert into replay_webhooks (replay_id, webhook_id, step, before_step, after_step)
        select id, :webhookId::bigint, ${FIRST_STEP}, from_id, from_id from made where :webhookId::bigint is not null
      )
      select id from made`,
    {
      apiKeyId,
      idempotencyKey,
      customer: scope === "everything" ? null : scope.customer,
      app: scope === "everything" ? null : scope.installedAppId,
      processes: scope === "everything" ? [] : [...scope.processes],
      kind,
      filter: stored,
      fromId: firstIdOf(from),
      toId: firstIdOf(to),
      webhookId,
    },
  );
  if (made) return { id: made.id, duplicate: false, same: true };
  const [earlier] = await rows<{ id: string; same: boolean }>(
    trx,
    `select id, kind = :kind::text and filter = :filter::jsonb as same from replays
      where api_key_id = :apiKeyId::uuid and idempotency_key = :idempotencyKey::text`,
    { apiKeyId, idempotencyKey, kind, filter: stored },
  );
  if (!earlier) throw new Error("a replay with this idempotency key was deleted meanwhile");
  return { ...earlier, duplicate: true };
}

/** The scope's replay with this id, which must be a UUID; undefined if it has none. */
export async function getReplay(db: Db, scope: Scope, id: string): Promise<ReplayRow | undefined> {
  const inScope = replayIn(scope);
  const [found] = await rows<StoredReplay>(
    db,
    `select ${COLUMNS} from replays r ${SUMS} where r.id = :id::uuid and ${inScope.sql}`,
    { id, ...inScope.bindings },
  );
  return found && toReplay(found);
}

/** Restricts a list of replays. */
export interface ReplayListFilter {
  /** Replays of this webhook alone, and open ones of several webhooks with this one among them. */
  webhookId?: bigint | undefined;
  /** Whether only open replays are listed. */
  open: boolean;
  /** Only replays older than this id: the next page. Null for all. */
  before: string | null;
}

/** The scope's replays, newest first. */
export async function listReplays(
  db: Db,
  scope: Scope,
  { webhookId, open, before }: ReplayListFilter,
  limit: number,
): Promise<ReplayRow[]> {
  const inScope = replayIn(scope);
  const conditions = [inScope.sql];
  if (open) conditions.push("r.ended is null");
  if (before !== null) conditions.push("r.id < :before::uuid");
  if (webhookId !== undefined) {
    conditions.push(`((r.filter ->> 'webhookId')::bigint = :webhookId::bigint
      or exists (select from replay_webhooks c where c.replay_id = r.id and c.webhook_id = :webhookId::bigint))`);
  }
  const found = await rows<StoredReplay>(
    db,
    `select ${COLUMNS} from (
        select r.* from replays r where ${conditions.join(" and ")} order by r.id desc limit :limit::int
      ) r ${SUMS} order by r.id desc`,
    { ...inScope.bindings, before, webhookId: webhookId ?? null, limit },
  );
  return found.map(toReplay);
}

/** A change of a replay by a user. */
export type ReplayChange = "pause" | "resume" | "cancel";

const CHANGES: Record<ReplayChange, { set: string; unless: string }> = {
  pause: { set: "paused = now(), active = null", unless: "r.paused is not null" },
  resume: { set: "paused = null, active = null", unless: "r.paused is null" },
  cancel: { set: "ended = now(), cancelled = true", unless: "false" },
};

/**
 * Pauses, resumes or cancels the scope's replay, unless it has ended. Waits for a step in progress. Requires a transaction.
 *
 * @returns whether that changed anything
 */
export async function changeReplay(
  trx: Db,
  scope: Scope,
  id: string,
  change: ReplayChange,
): Promise<boolean> {
  const inScope = replayIn(scope);
  const { set, unless } = CHANGES[change];
  const changed = await count(
    trx,
    `update replays r set ${set} where r.id = :id::uuid and r.ended is null and not (${unless}) and ${inScope.sql}`,
    { id, ...inScope.bindings },
  );
  if (changed > 0 && change === "cancel") await sumUp(trx, [id]);
  return changed > 0;
}

/** Cancels the open replays that a key has started. Requires a transaction. Returns their number. */
export async function cancelReplaysOfKey(trx: Db, apiKeyId: string): Promise<number> {
  const cancelled = await run(
    trx,
    trx("replays")
      .where({ api_key_id: apiKeyId, ended: null })
      .update({ ended: trx.fn.now(), cancelled: true })
      .returning("id"),
  );
  await sumUp(
    trx,
    cancelled.map(({ id }) => id),
  );
  return cancelled.length;
}

/** Moves the counts of ended replays from their webhooks to their own rows. Requires the locks of the replays. */
export async function sumUp(trx: Db, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  await count(
    trx,
    `with gone as (
        delete from replay_webhooks where replay_id = any(:ids::uuid[]) returning replay_id, queued, skipped
      )
      update replays r set queued = s.queued, skipped = s.skipped, webhooks = s.webhooks from (
        select replay_id, sum(queued) as queued, sum(skipped) as skipped, count(*) as webhooks from gone group by 1
      ) s where r.id = s.replay_id`,
    { ids },
  );
}

/** Whether another backfill of a webhook than `id` is open. Requires the lock of the webhook, so that of two backfills one is refused. */
export async function hasOpenBackfill(trx: Db, webhookId: bigint, id: string): Promise<boolean> {
  const [open] = await rows<{ id: string }>(
    trx,
    `select r.id from replays r join replay_webhooks p on p.replay_id = r.id
      where r.ended is null and r.kind = 'backfill' and p.webhook_id = :webhookId::bigint and r.id <> :id::uuid limit 1`,
    { webhookId, id },
  );
  return open !== undefined;
}

/**
 * The numbers of open replays: of keys with the scope's customer and app, or without them; and of all keys of the operator. Requires a
 * transaction, and lets no other one count until it ends, so that of several replays started at once each counts the ones before it.
 */
export async function countOpenReplays(trx: Db, scope: Scope): Promise<{ own: number; all: number }> {
  await takeLock(trx, "replays");
  const [found] = await rows<{ own: number; all: number }>(
    trx,
    `select count(*) filter (where customer is not distinct from :customer::text
        and installed_app_id is not distinct from :app::uuid)::int as own,
        count(*) filter (where customer is null)::int as all
      from replays where ended is null`,
    scope === "everything"
      ? { customer: null, app: null }
      : { customer: scope.customer, app: scope.installedAppId },
  );
  return found ?? { own: 0, all: 0 };
}

/** Deletes replays that ended before the retention, at most 1,000. Returns their number. */
export function deleteOldReplays(db: Db, retentionDays: number): Promise<number> {
  return count(
    db,
    `delete from replays where id = any(array(
        select id from replays where ended < now() - make_interval(days => :retentionDays::int) limit 1000))`,
    { retentionDays },
  );
}

/** A replay as PostgreSQL returns it: the filter's dates and big integers are texts. */
type StoredReplay = Omit<ReplayRow, "filter"> & { filter: StoredFilter };

type StoredFilter = Omit<ReplayFilter, "webhookId" | "from" | "to" | "search"> & {
  webhookId?: string;
  from?: string;
  to?: string;
  search?: Omit<SearchText, "webhookId"> & { webhookId?: string };
};

function toReplay(row: StoredReplay): ReplayRow {
  return { ...row, filter: toFilter(row.filter) };
}

/** A filter as it was before it was stored as JSON. */
export function toFilter({ webhookId, from, to, search, ...filter }: StoredFilter): ReplayFilter {
  const number = (stored: string | undefined) => (stored === undefined ? undefined : BigInt(stored));
  return {
    ...filter,
    webhookId: number(webhookId),
    from: from === undefined ? undefined : new Date(from),
    to: to === undefined ? undefined : new Date(to),
    search: search && { ...search, webhookId: number(search.webhookId) },
  };
}
