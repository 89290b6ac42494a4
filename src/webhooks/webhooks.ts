import { type Scope, webhookIn } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
import { SETTING_NAMES, SETTINGS, type SettingName, type Settings } from "../contract/webhooks/settings.ts";
import { assertWebhookQuota } from "../keys/index.ts";
import { type Bindings, type Db, rows, run } from "../lib/pg/index.ts";
import { ADVISORY_LOCKS } from "../schema/index.ts";
import { type Breaker, breakerColumns, removeBreakers } from "./breakers.ts";
import type { SecretBox } from "./secret-box.ts";
import { newSealedSecret } from "./webhook-secrets.ts";

/** The health of a webhook's endpoint, worst last. */
export const HEALTHS = ["healthy", "degraded", "failing"] as const;
export type Health = (typeof HEALTHS)[number];

/** A registered webhook with the name of its installed app, without its signing secret. */
export interface WebhookRow extends Settings {
  id: bigint;
  /** Increases with each change. */
  revision: bigint;
  process: number;
  /** The URL as registered. */
  url: string;
  /** The normalized URL, as requested. */
  targetUrl: string;
  apiKeyId: string;
  installedAppId: string | null;
  applicationName: string | null;
  /** The endpoint whose secrets and settings the webhook shares with those of other event types; null for none. */
  endpointId: string | null;
  /** The time since which a user has paused deliveries; null if none has. */
  paused: Date | null;
  /** An expression in CEL; null for none. */
  filter: string | null;
  /** The latest evaluation of the filter that took too long, accurate to a minute; null for none. */
  filterSlow: Date | null;
  /** The time since which the filter is switched off, because evaluations took too long; null if it is evaluated. */
  filterStopped: Date | null;
  /** Null for none. */
  breaker: Breaker | null;
  created: Date;
  modified: Date;
  /** Null when healthy. */
  trouble: Trouble | null;
}

/** The health of a webhook that is not healthy. */
export interface Trouble {
  health: Exclude<Health, "healthy">;
  /** ISO 8601. */
  since: string;
  lastError: string | null;
}

/** The attributes of a new webhook. */
export interface NewWebhook {
  process: number;
  url: string;
  /** `url` as normalized by TargetRules.normalise. Webhooks with the same target and process are identical. */
  targetUrl: string;
  apiKeyId: string;
  /** Null for none. */
  name?: string | null;
  /** Null for none. */
  endpointId?: string | null;
}

/** The columns of settings. @param table the name of `webhooks` in the query */
export const settingColumns = (table: string, names: readonly SettingName[] = SETTING_NAMES): string =>
  names.map((name) => `${table}.${SETTINGS[name].column} as "${name}"`).join(", ");

/** The columns of `WebhookRow`. @param table the name of `webhooks` in the query */
export const webhookColumns = (
  table: string,
) => `${table}.id, ${table}.revision, ${settingColumns(table)}, ${table}.process, ${table}.url, ${table}.target_url as "targetUrl",
  ${table}.api_key_id as "apiKeyId", ${table}.installed_app_id as "installedAppId",
  (select name from installed_apps where id = ${table}.installed_app_id) as "applicationName",
  ${table}.endpoint_id as "endpointId",
  ${table}.filter, ${table}.filter_slow as "filterSlow",
  ${table}.filter_stopped as "filterStopped", ${breakerColumns(table)}, ${table}.created, ${table}.modified,
  (select json_build_object('health', h.health, 'since', h.since, 'lastError', h.last_error) from webhook_health h
    where h.webhook_id = ${table}.id and h.health <> 'healthy') as trouble`;

/** A live webhook of the scope, or null. */
export async function getWebhook(db: Db, scope: Scope, id: bigint): Promise<WebhookRow | null> {
  const inScope = webhookIn(scope, "w");
  const [webhook] = await rows<WebhookRow>(
    db,
    `select ${webhookColumns("w")} from webhooks w where w.id = :id::bigint and w.deleted is null and ${inScope.sql}`,
    { id, ...inScope.bindings },
  );
  return webhook ?? null;
}

/** The ids of webhooks. */
export const idsOf = (webhooks: readonly Pick<WebhookRow, "id">[]): bigint[] => webhooks.map(({ id }) => id);

/**
 * Like `getWebhook`, and locks the webhook until the end of the transaction: other changes of it and of its circuit
 * breaker wait.
 */
export async function lockWebhook(trx: Db, scope: Scope, id: bigint): Promise<WebhookRow | null> {
  // Two statements: one that has waited for a lock sees other tables as they were before the wait.
  await run(trx, trx("webhooks").select("id").where({ id }).forNoKeyUpdate());
  return getWebhook(trx, scope, id);
}

/** A page of a list by id: at most `limit` rows after an id; null for the first rows. */
export interface IdPage {
  after: bigint | null;
  limit: number;
}

const pageOfIds = ({ after, limit }: IdPage) => ({ after: String(after ?? 0n), limit });

/**
 * A page of the live webhooks of every key and app, oldest first: the contract lists them all (4.1). By health, those of
 * a scope: a scope does not see the health of other webhooks.
 */
export function listWebhooks(
  db: Db,
  page: IdPage,
  wanted?: { scope: Scope; health: readonly Health[] },
): Promise<WebhookRow[]> {
  const all = `select ${webhookColumns("w")} from webhooks w where w.deleted is null and w.id > :after::bigint`;
  const inOrder = "order by w.id limit :limit::int";
  if (!wanted) return rows<WebhookRow>(db, `${all} ${inOrder}`, pageOfIds(page));
  const inScope = webhookIn(wanted.scope, "w");
  // A webhook without a row is healthy.
  const condition = wanted.health.includes("healthy")
    ? "w.id not in (select h.webhook_id from webhook_health h where h.health <> all(:health::text[]))"
    : "w.id in (select h.webhook_id from webhook_health h where h.health = any(:health::text[]))";
  return rows<WebhookRow>(db, `${all} and ${condition} and ${inScope.sql} ${inOrder}`, {
    health: wanted.health,
    ...pageOfIds(page),
    ...inScope.bindings,
  });
}

/**
 * A page of the ids of a scope's webhooks, including deleted ones, oldest first.
 *
 * @param ids only these; null for all
 */
export function listWebhookIds(
  db: Db,
  scope: Scope,
  ids: readonly bigint[] | null,
  page: IdPage,
): Promise<{ id: bigint }[]> {
  const inScope = webhookIn(scope, "w");
  const named = ids === null ? "true" : "w.id = any(:ids::bigint[])";
  return rows<{ id: bigint }>(
    db,
    `select w.id from webhooks w where w.id > :after::bigint and ${named} and ${inScope.sql} order by w.id limit :limit::int`,
    { ...pageOfIds(page), ...(ids === null ? {} : { ids: ids.map(String) }), ...inScope.bindings },
  );
}

/**
 * Registers a webhook with a new signing secret and the installed app of its key. If a live webhook has the same
 * process and target, returns that one unchanged. Safe under concurrent calls.
 *
 * @param maxWebhooks the maximum number of live webhooks
 * @throws DomainError UNAUTHENTICATED if the key was revoked in the meantime; FAILED_PRECONDITION if there are
 *   `maxWebhooks`, or as many as the key's quota
 */
export async function createWebhook(
  db: Db,
  secrets: SecretBox,
  webhook: NewWebhook,
  maxWebhooks: number,
): Promise<{ webhook: WebhookRow; created: boolean }> {
  const existing = await findWebhook(db, webhook);
  if (existing) return { webhook: existing, created: false };
  return db.transaction(async (trx) => {
    // Serialized: two concurrent calls could both take the last slot.
    await rows(trx, "select pg_advisory_xact_lock(:lock::bigint)", { lock: ADVISORY_LOCKS.registration });
    // Another call may have registered it in the meantime. Checked first, because every conflicting insert uses up an
    // id.
    const other = await findWebhook(trx, webhook);
    if (other) return { webhook: other, created: false };
    await assertRoom(trx, maxWebhooks, 1);
    await assertWebhookQuota(trx, webhook.apiKeyId, 1);
    return { webhook: await insertWebhook(trx, secrets, webhook), created: true };
  });
}

/** The live webhook with an event type and target, if any. */
export async function findWebhook(
  db: Db,
  { process, targetUrl }: Pick<NewWebhook, "process" | "targetUrl">,
): Promise<WebhookRow | undefined> {
  const [existing] = await rows<WebhookRow>(
    db,
    `select ${webhookColumns("w")} from webhooks w
      where w.process = :process::int and w.target_url = :targetUrl and w.deleted is null`,
    { process, targetUrl },
  );
  return existing;
}

/** @throws DomainError FAILED_PRECONDITION if there are too many webhooks to add some */
export async function assertRoom(trx: Db, maxWebhooks: number, added: number): Promise<void> {
  const [{ live } = { live: 0 }] = await rows<{ live: number }>(
    trx,
    "select count(*)::int as live from (select 1 from webhooks where deleted is null limit :max::int) live",
    { max: maxWebhooks },
  );
  if (live + added <= maxWebhooks) return;
  const full =
    live >= maxWebhooks
      ? `${maxWebhooks} webhooks are registered, the maximum`
      : `${live} webhooks are registered, and ${maxWebhooks} may be: ${added} more are too many`;
  throw new DomainError(
    "FAILED_PRECONDITION",
    `${full}; delete unused ones, or ask the operator to raise MAX_WEBHOOKS`,
    { reason: "TOO_MANY_WEBHOOKS" },
  );
}

/** The id of the next webhook. Its secrets are sealed for it, so it must be known before them. */
export async function nextWebhookId(trx: Db): Promise<bigint> {
  const [next] = await rows<{ id: bigint }>(trx, "select nextval('webhooks_id_seq') as id");
  return (next as { id: bigint }).id;
}

/** A part of a statement that inserts a webhook of `:process`: counts it, and raises the revision of its event type. */
export const insertedType = `
  type as (
    insert into processes (process, revision, live) values (:process::int, 1, 1)
    on conflict (process) do update set revision = processes.revision + 1, live = processes.live + 1
    returning revision
  )`;

/**
 * Inserts a webhook with a new signing secret and the installed app of its key. Requires the lock of registrations.
 *
 * @throws DomainError UNAUTHENTICATED if the key was revoked in the meantime
 */
export async function insertWebhook(
  trx: Db,
  secrets: SecretBox,
  { name = null, endpointId = null, ...webhook }: NewWebhook,
): Promise<WebhookRow> {
  const id = await nextWebhookId(trx);
  // The lock blocks revocation of the key, so that no webhook remains under a revoked key.
  const [made] = await rows<WebhookRow>(
    trx,
    `with owner as (
        select id, installed_app_id from api_keys where id = :apiKeyId::uuid and revoked is null for share
      ),
      ${insertedType}
      insert into webhooks as w
        (id, process, name, url, target_url, api_key_id, installed_app_id, endpoint_id, secret, created_revision)
      overriding system value
      select :id::bigint, :process::int, :name::text, :url::text, :targetUrl::text, owner.id, installed_app_id,
        :endpointId::uuid, :secret::bytea, type.revision
      from owner cross join type
      returning ${webhookColumns("w")}`,
    { ...webhook, name, endpointId, id, secret: newSealedSecret(secrets, id) },
  );
  if (!made) throw new DomainError("UNAUTHENTICATED", "the API key was revoked; use another key");
  return made;
}

/**
 * Marks live webhooks as deleted and increments the revision of their types in the same transaction, so that events
 * published afterwards do not count them. Their open deliveries stay: see `deleteWebhooks`. Requires a transaction.
 */
export async function markDeleted(trx: Db, condition: string, bindings: Bindings): Promise<WebhookRow[]> {
  // Locked first, so that only one of two concurrent deletions counts.
  const locked = await rows<{ id: bigint; process: number }>(
    trx,
    `select w.id, w.process from webhooks w where ${condition} and w.deleted is null order by w.id for update`,
    bindings,
  );
  if (locked.length === 0) return [];
  const ids = idsOf(locked);
  const deleted = await rows<WebhookRow>(
    trx,
    `with type as (
        insert into processes as p (process, revision, live)
        select process, 1, 0 from unnest(:processes::int[]) d(process) group by process order by process
        on conflict (process) do update set revision = p.revision + 1, live = greatest(0, p.live - (
          select count(*)::int from unnest(:processes::int[]) d(process) where d.process = p.process))
        returning process, revision
      )
      update webhooks w set deleted = now(), modified = now(), revision = w.revision + 1,
        deleted_revision = type.revision
      from type where w.id = any(:ids::bigint[]) and type.process = w.process
      returning ${webhookColumns("w")}`,
    { ids, processes: locked.map(({ process }) => process) },
  );
  await removeBreakers(trx, ids);
  return deleted;
}

/** Transfers all live webhooks of a key to another. Returns them. They keep their installed app. */
export async function transferWebhooks(trx: Db, fromKeyId: string, toKeyId: string): Promise<WebhookRow[]> {
  // By id, as those do that lock the webhooks of an endpoint.
  await run(
    trx,
    trx("webhooks")
      .select("id")
      .where({ api_key_id: fromKeyId, deleted: null })
      .orderBy("id")
      .forNoKeyUpdate(),
  );
  return rows<WebhookRow>(
    trx,
    `update webhooks w set api_key_id = :toKeyId::uuid, modified = now(), revision = w.revision + 1
      where w.api_key_id = :fromKeyId::uuid and w.deleted is null returning ${webhookColumns("w")}`,
    { fromKeyId, toKeyId },
  );
}

/** Whether a key owns live webhooks outside a scope. */
export async function ownsOutside(db: Db, scope: Scope, apiKeyId: string): Promise<boolean> {
  const inScope = webhookIn(scope, "w");
  const found = await rows(
    db,
    `select 1 from webhooks w
      where w.api_key_id = :apiKeyId::uuid and w.deleted is null and (${inScope.sql}) is not true limit 1`,
    { apiKeyId, ...inScope.bindings },
  );
  return found.length > 0;
}

/** The processes of a key's live webhooks. */
export async function processesOfKey(db: Db, apiKeyId: string): Promise<number[]> {
  const found = await run(
    db,
    db("webhooks").distinct("process").where({ api_key_id: apiKeyId, deleted: null }).orderBy("process"),
  );
  return found.map(({ process }) => process);
}
