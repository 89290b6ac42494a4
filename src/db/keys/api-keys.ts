import { createHash, randomBytes, randomUUID } from "node:crypto";
import { Permission, PermissionSchema } from "../../../gen/webhook/v1/options_pb.ts";
import { DomainError } from "../../contract/errors.ts";
import type { Db } from "../database.ts";
import { count, rows } from "../database.ts";
import { keyIn, type Scope } from "../scope.ts";

/** A key as stored: everything but its secret, of which only the SHA-256 exists. */
export interface ApiKeyRow {
  id: string;
  name: string;
  /** The first characters of the secret, to tell keys apart: 12, or 4 of one that an operator chose. */
  prefix: string;
  /** Numbers of Permission. */
  permissions: number[];
  /** Numbers of WebhookProcess; every type when empty. */
  allowedProcesses: number[];
  installedAppId: string | null;
  created: Date;
  revoked: Date | null;
  /** To about a minute. */
  lastUsed: Date | null;
}

/** A key as it is listed. */
export interface ListedApiKey extends ApiKeyRow {
  /** Until when secrets from before a rotation are taken; null when none is. */
  oldSecretsExpire: Date | null;
}

/** What a new key may do. */
export interface NewApiKey {
  name: string;
  permissions: readonly number[];
  allowedProcesses?: readonly number[];
  installedAppId?: string | null;
}

/** `whk_` and eight random characters. */
const PREFIX_LENGTH = 12;
/** Of a secret that a person chose: it may hold less chance than ours. */
const CHOSEN_PREFIX_LENGTH = 4;
const ADMIN_KEY_NAME = "Administrator";
/** The columns of an ApiKeyRow. */
export const API_KEY_COLUMNS = `id, name, prefix, permissions, allowed_processes as "allowedProcesses",
  installed_app_id as "installedAppId", created, revoked, last_used as "lastUsed"`;

/** Every permission there is, as an administrator's key has them. */
export const ALL_PERMISSIONS: readonly number[] = PermissionSchema.values
  .map((value) => value.number)
  .filter((number) => number !== Permission.UNSPECIFIED);

/** A new secret: `whk_` and 32 random bytes. */
export function generateApiKeySecret(): string {
  return `whk_${randomBytes(32).toString("base64url")}`;
}

/** What is stored of a secret. */
export function secretSha256(secret: string): Buffer {
  return createHash("sha256").update(secret).digest();
}

/** What is shown of a secret. */
export function secretPrefix(secret: string): string {
  return secret.slice(0, PREFIX_LENGTH);
}

/** The key with this secret, unless there is none or it was revoked. One indexed look-up. */
export async function findApiKey(db: Db, secret: string): Promise<ApiKeyRow | null> {
  const [key] = await findApiKeys(db, [secret]);
  return key ?? null;
}

/**
 * The keys with these secrets, in their order; null where there is none or it was revoked. One statement, and a second
 * when some are not known: those may be from before a rotation.
 *
 * Secrets are found by the index of their SHA-256. The time that takes tells a guesser something of the hash at most,
 * which a guess cannot be steered by; no secret is ever compared.
 */
export async function findApiKeys(db: Db, secrets: readonly string[]): Promise<(ApiKeyRow | null)[]> {
  const hashes = new Map(secrets.map((secret) => [secret, ""]));
  for (const secret of hashes.keys()) hashes.set(secret, secretSha256(secret).toString("hex"));
  const all = [...hashes.values()];
  const keys = await keysByHash(
    db,
    `select ${API_KEY_COLUMNS}, encode(secret_sha256, 'hex') as hash from api_keys
      where secret_sha256 = any(:hashes::bytea[]) and revoked is null`,
    all,
  );
  const unknown = all.filter((hash) => !keys.has(hash));
  if (unknown.length > 0) {
    const rotated = await keysByHash(
      db,
      `select ${API_KEY_COLUMNS}, hash
        from (select api_key_id, encode(secret_sha256, 'hex') as hash from api_key_old_secrets
          where secret_sha256 = any(:hashes::bytea[]) and expires > now()) old
        join api_keys on id = api_key_id
        where revoked is null`,
      unknown,
    );
    for (const [hash, key] of rotated) keys.set(hash, key);
  }
  return secrets.map((secret) => keys.get(hashes.get(secret) as string) ?? null);
}

/** By the hash, in hex, that each was found by. */
async function keysByHash(db: Db, sql: string, hashes: readonly string[]): Promise<Map<string, ApiKeyRow>> {
  const found = await rows<ApiKeyRow & { hash: string }>(db, sql, {
    hashes: hashes.map((hash) => Buffer.from(hash, "hex")),
  });
  return new Map(found.map(({ hash, ...key }) => [hash, key]));
}

/** The advisory lock under which keys are counted and made; any number, the same in every process. */
const CREATION_LOCK = 7_242_110_920;

/**
 * Makes a key, unless the service has as many as it may have, revoked ones included. The secret is in the answer and
 * never again. The id of its installed app must be a UUID.
 *
 * @returns null when there is no such installed app
 * @throws DomainError FAILED_PRECONDITION when there are `maxKeys` keys
 */
export function createBoundedApiKey(
  db: Db,
  key: NewApiKey,
  maxKeys: number,
): Promise<{ key: ApiKeyRow; secret: string } | null> {
  return db.transaction(async (trx) => {
    // The lock holds off the removal of the app.
    const app = await rows(trx, "select 1 from installed_apps where id = :id::uuid for key share", {
      id: key.installedAppId ?? null,
    });
    if (key.installedAppId && app.length === 0) return null;
    // One after the other: two at once could both find room for the last one.
    await rows(trx, "select pg_advisory_xact_lock(:lock::bigint)", { lock: CREATION_LOCK });
    const full = await rows(trx, "select 1 from api_keys offset :max::int - 1 limit 1", { max: maxKeys });
    if (full.length > 0) {
      throw new DomainError(
        "FAILED_PRECONDITION",
        `the service has ${maxKeys} API keys, revoked ones included, and takes no more; remove revoked keys with DeleteApiKey, or ask the operator to raise MAX_API_KEYS`,
        { reason: "TOO_MANY_API_KEYS" },
      );
    }
    return createApiKey(trx, key);
  });
}

/** Makes a key, however many there are. The secret is in the answer and never again. */
export async function createApiKey(db: Db, key: NewApiKey): Promise<{ key: ApiKeyRow; secret: string }> {
  const secret = generateApiKeySecret();
  const [row] = await rows<ApiKeyRow>(
    db,
    `insert into api_keys (id, name, prefix, secret_sha256, permissions, allowed_processes, installed_app_id)
      values (:id::uuid, :name, :prefix, :hash, :permissions::int[], :processes::int[], :app::uuid)
      returning ${API_KEY_COLUMNS}`,
    {
      id: randomUUID(),
      name: key.name,
      prefix: secretPrefix(secret),
      hash: secretSha256(secret),
      permissions: key.permissions,
      processes: key.allowedProcesses ?? [],
      app: key.installedAppId ?? null,
    },
  );
  return { key: row as ApiKeyRow, secret };
}

/**
 * Makes a key with this secret exist, active, with every permission and without an installed app, as ADMIN_KEY asks for.
 * Safe to call from any number of processes at once.
 */
export async function ensureAdminKey(db: Db, secret: string): Promise<ApiKeyRow> {
  const [row] = await rows<ApiKeyRow>(
    db,
    `insert into api_keys (id, name, prefix, secret_sha256, permissions)
      values (:id::uuid, :name, :prefix, :hash, :permissions::int[])
      on conflict (secret_sha256) do update set permissions = excluded.permissions, allowed_processes = '{}', revoked = null,
        prefix = excluded.prefix, installed_app_id = null
      returning ${API_KEY_COLUMNS}`,
    {
      id: randomUUID(),
      name: ADMIN_KEY_NAME,
      prefix: secret.slice(0, CHOSEN_PREFIX_LENGTH),
      hash: secretSha256(secret),
      permissions: ALL_PERMISSIONS,
    },
  );
  return row as ApiKeyRow;
}

/** Every key of the scope, revoked ones too, oldest first. */
export function listApiKeys(db: Db, scope: Scope): Promise<ListedApiKey[]> {
  const inScope = keyIn(scope, "k");
  return rows<ListedApiKey>(
    db,
    `select ${API_KEY_COLUMNS}, (select max(expires) from api_key_old_secrets
          where api_key_id = id and expires > now() and revoked is null) as "oldSecretsExpire"
      from api_keys k where ${inScope.sql} order by created, id`,
    inScope.bindings,
  );
}

/**
 * Takes down that keys were used. Those that another process wrote within `everyMs` stay as they are, and so do those
 * whose row is locked: nobody waits for this.
 */
export async function recordKeyUse(
  db: Db,
  uses: readonly { id: string; at: Date }[],
  everyMs: number,
): Promise<void> {
  await count(
    db,
    `with due as (
        select k.id, u.at from api_keys k
          join unnest(:ids::uuid[], :times::timestamptz[]) as u(id, at) on u.id = k.id
        where k.last_used is null or k.last_used <= u.at - make_interval(secs => :everyMs::float8 / 1000)
        for no key update of k skip locked
      )
      update api_keys k set last_used = due.at from due where k.id = due.id`,
    { ids: uses.map(({ id }) => id), times: uses.map(({ at }) => at), everyMs },
  );
}

/**
 * Keys of the scope by id, locked in the order of their ids until the transaction ends: registrations under them wait, and two
 * callers that want the same keys cannot deadlock.
 */
export function lockApiKeys(trx: Db, scope: Scope, ids: readonly string[]): Promise<ApiKeyRow[]> {
  const inScope = keyIn(scope, "k");
  return rows<ApiKeyRow>(
    trx,
    `select ${API_KEY_COLUMNS} from api_keys k where id = any(:ids::uuid[]) and ${inScope.sql}
      order by id for no key update`,
    { ids, ...inScope.bindings },
  );
}

/** Refuses the key from now on; what becomes of its webhooks is decided by `revokeApiKey`. */
export async function markRevoked(trx: Db, id: string): Promise<ApiKeyRow> {
  const [row] = await rows<ApiKeyRow>(
    trx,
    `update api_keys set revoked = now() where id = :id::uuid returning ${API_KEY_COLUMNS}`,
    { id },
  );
  return row as ApiKeyRow;
}
