import { createHash, randomBytes, randomUUID } from "node:crypto";
import { Permission, PermissionSchema } from "../../gen/webhook/v1/options_pb.ts";
import type { Db } from "./database.ts";
import { rows } from "./database.ts";

/** A key as stored: everything but its secret, of which only the SHA-256 exists. */
export interface ApiKeyRow {
  id: string;
  name: string;
  /** The first characters of the secret, to tell keys apart. */
  prefix: string;
  /** Numbers of Permission. */
  permissions: number[];
  /** Numbers of WebhookProcess; every type when empty. */
  allowedProcesses: number[];
  installedAppId: string | null;
  created: Date;
  revoked: Date | null;
}

/** What a new key may do. */
export interface NewApiKey {
  name: string;
  permissions: readonly number[];
  allowedProcesses?: readonly number[];
  installedAppId?: string | null;
}

const PREFIX_LENGTH = 12;
const ADMIN_KEY_NAME = "Administrator";
const COLUMNS = `id, name, prefix, permissions, allowed_processes as "allowedProcesses",
  installed_app_id as "installedAppId", created, revoked`;

/** Every permission there is, as an administrator's key has them. */
export const ALL_PERMISSIONS: readonly number[] = PermissionSchema.values
  .map((value) => value.number)
  .filter((number) => number !== Permission.UNSPECIFIED);

/** A new secret: `whk_` and 32 random bytes. */
export function generateApiKeySecret(): string {
  return `whk_${randomBytes(32).toString("base64url")}`;
}

function sha256(secret: string): Buffer {
  return createHash("sha256").update(secret).digest();
}

/** The key with this secret, unless there is none or it was revoked. One indexed look-up. */
export async function findApiKey(db: Db, secret: string): Promise<ApiKeyRow | null> {
  const [key] = await findApiKeys(db, [secret]);
  return key ?? null;
}

/** The keys with these secrets, in their order; null where there is none or it was revoked. One statement. */
export async function findApiKeys(db: Db, secrets: readonly string[]): Promise<(ApiKeyRow | null)[]> {
  const hashes = new Map(secrets.map((secret) => [secret, ""]));
  for (const secret of hashes.keys()) hashes.set(secret, sha256(secret).toString("hex"));
  const found = await rows<ApiKeyRow & { hash: string }>(
    db,
    `select ${COLUMNS}, encode(secret_sha256, 'hex') as hash from api_keys
      where secret_sha256 = any(:hashes::bytea[]) and revoked is null`,
    { hashes: [...hashes.values()].map((hash) => Buffer.from(hash, "hex")) },
  );
  const keys = new Map(found.map(({ hash, ...key }) => [hash, key]));
  return secrets.map((secret) => keys.get(hashes.get(secret) as string) ?? null);
}

/** Makes a key. The secret is in the answer and never again. */
export async function createApiKey(db: Db, key: NewApiKey): Promise<{ key: ApiKeyRow; secret: string }> {
  const secret = generateApiKeySecret();
  const [row] = await rows<ApiKeyRow>(
    db,
    `insert into api_keys (id, name, prefix, secret_sha256, permissions, allowed_processes, installed_app_id)
      values (:id::uuid, :name, :prefix, :hash, :permissions::int[], :processes::int[], :app::uuid)
      returning ${COLUMNS}`,
    {
      id: randomUUID(),
      name: key.name,
      prefix: secret.slice(0, PREFIX_LENGTH),
      hash: sha256(secret),
      permissions: key.permissions,
      processes: key.allowedProcesses ?? [],
      app: key.installedAppId ?? null,
    },
  );
  return { key: row as ApiKeyRow, secret };
}

/**
 * Makes a key with this secret exist, active and with every permission, as ADMIN_KEY asks for. Safe to call from
 * any number of processes at once.
 */
export async function ensureAdminKey(db: Db, secret: string): Promise<ApiKeyRow> {
  const [row] = await rows<ApiKeyRow>(
    db,
    `insert into api_keys (id, name, prefix, secret_sha256, permissions)
      values (:id::uuid, :name, :prefix, :hash, :permissions::int[])
      on conflict (secret_sha256) do update set permissions = excluded.permissions, allowed_processes = '{}', revoked = null
      returning ${COLUMNS}`,
    {
      id: randomUUID(),
      name: ADMIN_KEY_NAME,
      prefix: secret.slice(0, PREFIX_LENGTH),
      hash: sha256(secret),
      permissions: ALL_PERMISSIONS,
    },
  );
  return row as ApiKeyRow;
}

/** Every key, revoked ones too, oldest first. */
export function listApiKeys(db: Db): Promise<ApiKeyRow[]> {
  return rows<ApiKeyRow>(db, `select ${COLUMNS} from api_keys order by created, id`);
}

/**
 * Keys by id, locked in the order of their ids until the transaction ends: registrations under them wait, and two
 * callers that want the same keys cannot deadlock.
 */
export function lockApiKeys(trx: Db, ids: readonly string[]): Promise<ApiKeyRow[]> {
  return rows<ApiKeyRow>(
    trx,
    `select ${COLUMNS} from api_keys where id = any(:ids::uuid[]) order by id for no key update`,
    { ids },
  );
}

/** Refuses the key from now on; what becomes of its webhooks is decided by `revokeApiKey`. */
export async function markRevoked(trx: Db, id: string): Promise<ApiKeyRow> {
  const [row] = await rows<ApiKeyRow>(
    trx,
    `update api_keys set revoked = now() where id = :id::uuid returning ${COLUMNS}`,
    { id },
  );
  return row as ApiKeyRow;
}
