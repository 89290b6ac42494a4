import { hash, randomBytes, randomUUID } from "node:crypto";
import { Permission, PermissionSchema } from "../../gen/webhook/v1/options_pb.ts";
import { type ApiKeyRow, ownedIn, type Scope } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
import { makeCustomer } from "../customers/index.ts";
import { column, type Db, rows, run } from "../lib/pg/index.ts";
import { aliased, takeLock } from "../schema/index.ts";
import { CREATED_US, type CreatedPage, pageByCreated } from "./created-page.ts";
import { assertNoMoreRights } from "./more-rights.ts";

/** A key in a list. */
export interface ListedApiKey extends ApiKeyRow {
  /** The time until which secrets from before a rotation remain valid; null if there are none. */
  oldSecretsExpire: Date | null;
}

/** The attributes of a new key. */
export interface NewApiKey {
  name: string;
  permissions: readonly number[];
  allowedProcesses?: readonly number[];
  /** The user_id of the customer that it belongs to. Defaults to none: a key of the operator. */
  customer?: string | null;
  installedAppId?: string | null;
  /** Defaults to none. */
  quotas?: Quotas;
}

/** The quotas of a key; null for none. */
export type Quotas = Pick<ApiKeyRow, "webhookQuota" | "eventsPerSecond">;

/** The displayed length of a generated secret: `whk_` and eight random characters. */
const PREFIX_LENGTH = 12;
/** The displayed length of an operator-chosen secret, which may have less entropy. */
const CHOSEN_PREFIX_LENGTH = 4;
const ADMIN_KEY_NAME = "Administrator";
/** The columns of an ApiKeyRow. */
export const API_KEY_SELECTION = aliased<Omit<ApiKeyRow, "customerEventsPerSecond">>({
  id: "id",
  name: "name",
  prefix: "prefix",
  permissions: "permissions",
  allowedProcesses: "allowed_processes",
  customer: "customer",
  installedAppId: "installed_app_id",
  created: "created",
  revoked: "revoked",
  lastUsed: "last_used",
  webhookQuota: "webhook_quota",
  eventsPerSecond: "events_per_second",
});
/** The same for raw statements. */
export const API_KEY_COLUMNS = API_KEY_SELECTION.map((each) => each.replace(/ as (.*)/, ' as "$1"')).join();
/** The quota of events of the customer of a row of `api_keys`; null if it has none. */
const CUSTOMER_RATE = `(select c.events_per_second from customers c where c.id = api_keys.customer) as "customerEventsPerSecond"`;

/** All permissions, as an administrator's key has them. */
export const ALL_PERMISSIONS: readonly number[] = PermissionSchema.values
  .map((value) => value.number)
  .filter((number) => number !== Permission.UNSPECIFIED);

/** Generates a secret: `whk_` and 32 random bytes. */
export function generateApiKeySecret(): string {
  return `whk_${randomBytes(32).toString("base64url")}`;
}

/** The stored hash of a secret. */
export function secretSha256(secret: string): Buffer {
  return Buffer.from(secretHash(secret), "hex");
}

/** The hash of a secret in hex: several times as fast as its bytes. */
export function secretHash(secret: string): string {
  return hash("sha256", secret, "hex");
}

/** The displayed prefix of a secret. */
export function secretPrefix(secret: string): string {
  return secret.slice(0, PREFIX_LENGTH);
}

/**
 * The keys with these secrets, in order; null for those that do not exist or are revoked. Runs one statement, and a
 * second one if some are unknown, because they may be from before a rotation.
 *
 * Keys are looked up by SHA-256 hash, so timing reveals nothing useful to an attacker.
 */
export async function findApiKeys(db: Db, secrets: readonly string[]): Promise<(ApiKeyRow | null)[]> {
  const hashes = new Map(secrets.map((secret) => [secret, ""]));
  for (const secret of hashes.keys()) hashes.set(secret, secretHash(secret));
  const all = [...hashes.values()];
  const keys = await keysByHash(
    db,
    `select ${API_KEY_COLUMNS}, ${CUSTOMER_RATE}, encode(secret_sha256, 'hex') as hash from api_keys
      where secret_sha256 = any(:hashes::bytea[]) and revoked is null`,
    all,
  );
  const unknown = all.filter((hash) => !keys.has(hash));
  if (unknown.length > 0) {
    const rotated = await keysByHash(
      db,
      `select ${API_KEY_COLUMNS}, ${CUSTOMER_RATE}, hash
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

/** The keys by the hash, in hex, that matched each. */
async function keysByHash(db: Db, sql: string, hashes: readonly string[]): Promise<Map<string, ApiKeyRow>> {
  const found = await rows<ApiKeyRow & { hash: string }>(db, sql, {
    hashes: hashes.map((hash) => Buffer.from(hash, "hex")),
  });
  return new Map(found.map(({ hash, ...key }) => [hash, key]));
}

/**
 * Creates a key, unless the service has `maxKeys`, including revoked ones. Only this response contains the secret.
 * The id of its installed app must be a UUID.
 *
 * @returns null if the installed app does not exist
 * @throws DomainError FAILED_PRECONDITION if there are `maxKeys` keys
 */
export function createBoundedApiKey(
  db: Db,
  key: NewApiKey,
  maxKeys: number,
): Promise<{ key: ApiKeyRow; secret: string } | null> {
  return db.transaction(async (trx) => {
    if (key.installedAppId) {
      // The lock blocks the removal of the app.
      const app = trx("installed_apps").select("id").where({ id: key.installedAppId }).forKeyShare();
      if ((await run(trx, app)).length === 0) return null;
    }
    if (key.customer) await makeCustomer(trx, key.customer);
    await takeLock(trx, "keys");
    if (await hasRows(trx, "api_keys", maxKeys)) {
      // How many others have does not concern a customer.
      const full = key.customer
        ? "the service takes no more API keys, including revoked ones"
        : `the service has ${maxKeys} API keys, including revoked ones, and at most ${maxKeys} are allowed`;
      throw new DomainError(
        "TOO_MANY_API_KEYS",
        `${full}; remove revoked keys with DeleteApiKey, or ask the operator to raise MAX_API_KEYS`,
      );
    }
    return createApiKey(trx, key);
  });
}

/** Creates a key without a limit. Only this response contains the secret. @param secret defaults to a new one */
export async function createApiKey(
  db: Db,
  key: NewApiKey,
  secret = generateApiKeySecret(),
): Promise<{ key: ApiKeyRow; secret: string }> {
  const row = {
    id: randomUUID(),
    name: key.name,
    prefix: secretPrefix(secret),
    secret_sha256: secretSha256(secret),
    permissions: [...key.permissions],
    allowed_processes: [...(key.allowedProcesses ?? [])],
    customer: key.customer ?? null,
    installed_app_id: key.installedAppId ?? null,
    webhook_quota: key.quotas?.webhookQuota ?? null,
    events_per_second: key.quotas?.eventsPerSecond ?? null,
  };
  const [made] = await run(db, db("api_keys").insert(row).returning<ApiKeyRow[]>(API_KEY_SELECTION));
  return { key: made as ApiKeyRow, secret };
}

/**
 * Ensures that an active key with this secret exists, with every permission and without an installed app, for
 * ADMIN_KEY. Safe to call concurrently from any number of processes.
 *
 * @returns the key, and what it was before; null for a new key
 */
export function ensureAdminKey(
  db: Db,
  secret: string,
): Promise<{ before: ApiKeyRow | null; key: ApiKeyRow }> {
  const hash = secretSha256(secret);
  const rights = {
    prefix: secret.slice(0, CHOSEN_PREFIX_LENGTH),
    permissions: [...ALL_PERMISSIONS],
    allowed_processes: [],
    customer: null,
    installed_app_id: null,
    revoked: null,
  };
  return db.transaction(async (trx) => {
    await takeLock(trx, "keys");
    const [before = null] = await run(
      trx,
      trx("api_keys").where({ secret_sha256: hash }).forNoKeyUpdate().select<ApiKeyRow[]>(API_KEY_SELECTION),
    );
    const row = { id: randomUUID(), name: ADMIN_KEY_NAME, secret_sha256: hash, ...rights };
    const [key] = await run(
      trx,
      trx("api_keys")
        .insert(row)
        .onConflict("secret_sha256")
        .merge(rights)
        .returning<ApiKeyRow[]>(API_KEY_SELECTION),
    );
    return { before, key: key as ApiKeyRow };
  });
}

/** Whether a table has at least `min` rows. To compare a limit, callers take its lock first: two could take the last place. */
export async function hasRows(db: Db, table: "api_keys" | "installed_apps", min: number): Promise<boolean> {
  return (
    (
      await run(
        db,
        db(table)
          .select("id")
          .offset(min - 1)
          .limit(1),
      )
    ).length > 0
  );
}

/** Whether the service has a key, including revoked ones. */
export function hasApiKeys(db: Db): Promise<boolean> {
  return hasRows(db, "api_keys", 1);
}

/** A page of the scope's keys, including revoked ones, oldest first. */
export function listApiKeys(
  db: Db,
  scope: Scope,
  page: CreatedPage,
): Promise<(ListedApiKey & { createdUs: bigint })[]> {
  const inScope = ownedIn(scope, "k");
  const paged = pageByCreated(page);
  return rows(
    db,
    `select ${API_KEY_COLUMNS}, ${CREATED_US}, (select max(expires) from api_key_old_secrets
          where api_key_id = id and expires > now() and revoked is null) as "oldSecretsExpire"
      from api_keys k where ${inScope.sql} and ${paged.sql}`,
    { ...inScope.bindings, ...paged.bindings },
  );
}

/**
 * Records that keys were used, unless another process recorded it within `everyMs` milliseconds. Waits for no lock:
 * answers the ids of keys whose row another transaction holds, which are not recorded.
 */
export function recordKeyUse(
  db: Db,
  uses: readonly { id: string; at: Date }[],
  everyMs: number,
): Promise<string[]> {
  return column<string>(
    db,
    `with free as (
        select k.id, u.at from api_keys k
          join unnest(:ids::uuid[], :times::timestamptz[]) as u(id, at) on u.id = k.id
        for no key update of k skip locked
      ), recorded as (
        update api_keys k set last_used = free.at from free where k.id = free.id
          and (k.last_used is null or k.last_used <= free.at - make_interval(secs => :everyMs::float8 / 1000))
      )
      select id from api_keys where id = any(:ids::uuid[]) and id not in (select id from free)`,
    { ids: uses.map(({ id }) => id), times: uses.map(({ at }) => at), everyMs },
  );
}

/**
 * The keys of the scope by id, locked in id order until the end of the transaction: registrations with them wait, and
 * concurrent callers cannot deadlock.
 */
export function lockApiKeys(trx: Db, scope: Scope, ids: readonly string[]): Promise<ApiKeyRow[]> {
  const inScope = ownedIn(scope, "k");
  return rows<ApiKeyRow>(
    trx,
    `select ${API_KEY_COLUMNS} from api_keys k where id = any(:ids::uuid[]) and ${inScope.sql}
      order by id for no key update`,
    { ids, ...inScope.bindings },
  );
}

/** `lockApiKeys` for one key. @throws DomainError NOT_FOUND if the scope has no such key */
export async function lockApiKey(trx: Db, scope: Scope, id: string): Promise<ApiKeyRow> {
  const [key] = await lockApiKeys(trx, scope, [id]);
  if (!key) throw noSuchKey("api_key_id", id);
  return key;
}

/**
 * Changes the name of a key.
 *
 * @returns the key as it was before, and as it is now
 * @throws DomainError NOT_FOUND if the scope has no such key; PERMISSION_DENIED if it has more rights than the scope
 */
export function renameApiKey(
  db: Db,
  scope: Scope,
  id: string,
  name: string,
): Promise<{ before: ApiKeyRow; key: ApiKeyRow }> {
  return db.transaction(async (trx) => {
    const before = await lockApiKey(trx, scope, id);
    assertNoMoreRights(scope, before, `the API key ${id}`);
    await run(trx, trx("api_keys").where({ id }).update({ name }));
    return { before, key: { ...before, name } };
  });
}

/** The error for a key that does not exist or is outside the scope. @param field the field of the request that names it */
export function noSuchKey(field: string, id: string): DomainError {
  return new DomainError("API_KEY_NOT_FOUND", `${field}: there is no API key ${id}`);
}

/** Revokes the key. `revokeApiKey` handles its webhooks. */
export async function markRevoked(trx: Db, id: string): Promise<ApiKeyRow> {
  const [row] = await run(
    trx,
    trx("api_keys").where({ id }).update({ revoked: trx.fn.now() }).returning<ApiKeyRow[]>(API_KEY_SELECTION),
  );
  return row as ApiKeyRow;
}
