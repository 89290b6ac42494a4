import type { AuditAction as Actions } from "../../gen/webhook/v1/audit_pb.ts";
import { type Owned, ownedIn, type Scope } from "../calls/index.ts";
import { type Bindings, count, type Db, rows, transactionWithRetry } from "../lib/pg/index.ts";
import { firstIdOf } from "../schema/index.ts";

/** An audited action: the name of a member of the enum, in lower case. */
export type AuditAction = Exclude<Lowercase<keyof typeof Actions>, "unspecified">;

/** The author of a change. */
export interface Actor extends Owned {
  apiKeyId: string;
  apiKeyName: string;
  /** Identifies the session of the settings page; null for a call with a key. */
  sessionId: string | null;
  /** The IP address of the caller; null if it is not known. */
  address: string | null;
}

/** Changes made without a key: by the service itself, or by `npm run admin-key`. */
export const OPERATOR = null;

/** Values by the names of their fields. Never secrets. */
export type Facts = Readonly<Record<string, string | number | boolean | null | readonly string[]>>;

/** The object of a change. */
export interface AuditTarget {
  id: string | null;
  name: string | null;
  /** The customer whose keys see the entry. */
  customer: string | null;
  /** The installed app whose keys see the entry. */
  appId: string | null;
  /** The event type of a webhook; 0 for several, which only keys for every type see. */
  process: number | null;
}

/** A target that belongs to the whole service. */
export const SERVICE_WIDE = {
  id: null,
  name: null,
  customer: null,
  appId: null,
  process: null,
} satisfies AuditTarget;

/** A change to record. */
export interface AuditRecord {
  action: AuditAction;
  target: AuditTarget;
  before?: Facts;
  after?: Facts;
}

/** A stored entry. */
export interface AuditRow {
  id: string;
  action: AuditAction;
  apiKeyId: string | null;
  apiKeyName: string | null;
  actorCustomer: string | null;
  actorAppId: string | null;
  sessionId: string | null;
  address: string | null;
  targetId: string | null;
  targetName: string | null;
  customer: string | null;
  appId: string | null;
  process: number | null;
  before: Facts;
  after: Facts;
}

/** Restricts a list. Undefined fields do not restrict. */
export interface AuditFilter {
  actions?: readonly AuditAction[] | undefined;
  apiKeyId?: string | undefined;
  targetId?: string | undefined;
  /** The id of what was changed, or a part of its name or of the key's, in lower case. */
  search?: string | undefined;
  from?: Date | undefined;
  to?: Date | undefined;
  /** Only entries older than this id: the next page. Null for all. */
  before?: string | null;
}

/** Writes entries in the transaction of `audited`. */
export type Recorder = (...records: AuditRecord[]) => Promise<void>;

/** Runs a change and writes its entries in one transaction. Repeats both after a deadlock. */
export function audited<T>(
  db: Db,
  actor: Actor | typeof OPERATOR,
  change: (trx: Db, record: Recorder) => Promise<T>,
): Promise<T> {
  return transactionWithRetry(db, (trx) => change(trx, (...records) => recordChanges(trx, actor, records)));
}

/** Writes entries. Requires the transaction of the changes. */
export async function recordChanges(
  trx: Db,
  actor: Actor | typeof OPERATOR,
  records: readonly AuditRecord[],
): Promise<void> {
  if (records.length === 0) return;
  const entries = records.map(({ action, target, before = {}, after = {} }) => ({
    action,
    target_id: target.id,
    target_name: target.name,
    customer: target.customer,
    app_id: target.appId,
    process: target.process,
    ...differences(before, after),
  }));
  await count(
    trx,
    `insert into audit_log (action, api_key_id, api_key_name, actor_customer, actor_app_id, session_id, address,
        target_id, target_name, customer, app_id, process, before, after)
      select e.action, :apiKeyId::uuid, :apiKeyName::text, :customer::text, :installedAppId::uuid, :sessionId::text, :address::inet,
        e.target_id, e.target_name, e.customer, e.app_id, e.process, e.before, e.after
      from jsonb_to_recordset(:entries::jsonb) e(action text, target_id text, target_name text, customer text, app_id uuid,
        process int, before jsonb, after jsonb)`,
    {
      apiKeyId: actor?.apiKeyId ?? null,
      apiKeyName: actor?.apiKeyName ?? null,
      customer: actor?.customer ?? null,
      installedAppId: actor?.installedAppId ?? null,
      sessionId: actor?.sessionId ?? null,
      address: actor?.address ?? null,
      entries: JSON.stringify(entries),
    },
  );
}

/** The fields with different values. */
function differences(before: Facts, after: Facts): { before: Facts; after: Facts } {
  const same = Object.keys(before).filter(
    (field) => field in after && JSON.stringify(before[field]) === JSON.stringify(after[field]),
  );
  const without = (facts: Facts) =>
    Object.fromEntries(Object.entries(facts).filter(([field]) => !same.includes(field)));
  return { before: without(before), after: without(after) };
}

/** The maximum number of entries that a search examines: some 20 ms of work. */
const MAX_SEARCHED = 20_000;

/** A page of entries. */
export interface AuditPage {
  entries: AuditRow[];
  /** The last examined entry, if a search stopped before the page was full. */
  searchedTo: string | null;
}

/** The entries of the scope, newest first. */
export async function listAuditEntries(
  db: Db,
  scope: Scope,
  filter: AuditFilter,
  limit: number,
): Promise<AuditPage> {
  const conditions: string[] = [];
  const bindings: Bindings = { limit };
  const restrict = (condition: string, values: Bindings) => {
    conditions.push(condition);
    Object.assign(bindings, values);
  };
  const owned = ownedIn(scope, "a", { customer: "customer", app: "app_id" });
  restrict(owned.sql, owned.bindings);
  if (scope !== "everything" && scope.processes.length > 0) {
    restrict("(a.process is null or a.process = any(:scopeProcesses::int[]))", {
      scopeProcesses: scope.processes,
    });
  }
  // A scope does not see who made a change with a key outside of it.
  const byKnown = ownedIn(scope, "a", { customer: "actor_customer", app: "actor_app_id" });
  const { actions = [], apiKeyId, targetId, from, to, before, search } = filter;
  if (actions.length > 0) restrict("a.action = any(:actions::text[])", { actions });
  if (apiKeyId !== undefined) {
    restrict("a.api_key_id = :apiKeyId::uuid", { apiKeyId });
    restrict(byKnown.sql, {});
  }
  if (targetId !== undefined) restrict("a.target_id = :targetId::text", { targetId });
  if (from) restrict("a.id >= :from::uuid", { from: firstIdOf(from) });
  if (to) restrict("a.id < :to::uuid", { to: firstIdOf(to) });
  if (before) restrict("a.id < :before::uuid", { before });
  const where = conditions.length > 0 ? `where ${conditions.join(" and ")}` : "";
  const ordered = (most: string) => `select a.* from audit_log a ${where} order by a.id desc limit ${most}`;
  const matches = `(a.target_id = :search or position(:search in lower(a.target_name)) > 0
    or position(:search in lower(case when ${byKnown.sql} then a.api_key_name end)) > 0) is true`;
  const examined =
    search === undefined
      ? `select a.*, true as matches, false as last from (${ordered(":limit::int")}) a`
      : `select * from (
          select a.*, ${matches} as matches, row_number() over (order by a.id desc) = ${MAX_SEARCHED} as last
          from (${ordered(String(MAX_SEARCHED))}) a
        ) a where matches or last order by id desc limit :limit::int`;
  const found = await rows<AuditRow & { matches: boolean; last: boolean }>(
    db,
    `select a.id, a.action, a.api_key_id as "apiKeyId", a.api_key_name as "apiKeyName",
        a.actor_customer as "actorCustomer", a.actor_app_id as "actorAppId", a.session_id as "sessionId",
        host(a.address) as address, a.target_id as "targetId", a.target_name as "targetName", a.customer,
        a.app_id as "appId", a.process, a.before, a.after, a.matches, a.last
      from (${examined}) a order by a.id desc`,
    { ...bindings, ...(search === undefined ? {} : { search }) },
  );
  const end = found.at(-1);
  return {
    entries: found.filter(({ matches }) => matches).map(({ matches: _matches, last: _last, ...row }) => row),
    searchedTo: end?.last ? end.id : null,
  };
}

/** The maximum number of entries deleted by one statement. */
const MAX_DELETED = 1_000;

/**
 * Deletes entries older than the retention, at most 1,000 per call, oldest first.
 *
 * @param retentionDays at least 7: the database refuses to delete newer entries
 * @returns the number deleted; less than 1,000 if none is left
 */
export function deleteOldAuditEntries(db: Db, retentionDays: number): Promise<number> {
  return db.transaction(async (trx) => {
    // The trigger of the table lets only such a transaction delete entries.
    await rows(trx, "select set_config('webhook_service.audit_retention_days', :days::text, true)", {
      days: String(retentionDays),
    });
    return count(
      trx,
      `delete from audit_log where id = any(array(
          select id from audit_log where written < now() - make_interval(days => :days::int) - interval '1 minute'
          order by id limit ${MAX_DELETED}))`,
      { days: retentionDays },
    );
  });
}
