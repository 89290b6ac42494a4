import { randomBytes } from "node:crypto";
import { API_KEY_COLUMNS, type ApiKeyRow, secretSha256 } from "./api-keys.ts";
import { count, type Db, rows } from "./database.ts";

/** A session that is not used for so long has ended. */
const IDLE_HOURS = 12;
/** However much it is used. */
const MOST_DAYS = 7;
/** Each use moves the end, but only such a step is worth a write. */
const STEP_MINUTES = 5;

/** The latest that a session may end, in seconds from its start. */
export const SESSION_MOST_SECONDS = MOST_DAYS * 24 * 3_600;

/** A session that goes on. */
export interface SessionRow {
  key: ApiKeyRow;
  expires: Date;
}

/**
 * Starts a session of a key, and forgets those that have ended.
 *
 * @param secret one that the key is found by
 * @returns the token, which is in this answer and never again: only its SHA-256 is stored. Null when the secret was
 *   rotated away or the key revoked meanwhile.
 */
export async function startSession(
  db: Db,
  keyId: string,
  secret: string,
): Promise<{ token: string; expires: Date } | null> {
  await count(db, "delete from sessions where expires <= now()");
  const token = randomBytes(32).toString("base64url");
  const [row] = await rows<{ expires: Date }>(
    db,
    `insert into sessions (token_sha256, api_key_id, key_secret_sha256, expires)
      select :token, id, secret_sha256, now() + make_interval(hours => ${IDLE_HOURS}) from api_keys
      where id = :keyId::uuid and revoked is null and (secret_sha256 = :secret or exists (
        select from api_key_old_secrets o
        where o.secret_sha256 = :secret and o.api_key_id = api_keys.id and o.expires > now()))
      returning expires`,
    { token: secretSha256(token), keyId, secret: secretSha256(secret) },
  );
  return row ? { token, expires: row.expires } : null;
}

/**
 * The session with this token, which this use makes longer; null when it has ended, by time or by signing out, or its
 * key was revoked or given another secret.
 */
export async function findSession(db: Db, token: string): Promise<SessionRow | null> {
  const hash = secretSha256(token);
  const [row] = await rows<ApiKeyRow & { expires: Date; next: Date; due: boolean }>(
    db,
    `select ${API_KEY_COLUMNS}, expires, next, next > expires + make_interval(mins => ${STEP_MINUTES}) as due
      from (select api_key_id, key_secret_sha256, expires,
          least(now() + make_interval(hours => ${IDLE_HOURS}), started + make_interval(days => ${MOST_DAYS})) as next
        from sessions where token_sha256 = :hash and expires > now()) session
      join api_keys on id = api_key_id and secret_sha256 = key_secret_sha256
      where revoked is null`,
    { hash },
  );
  if (!row) return null;
  const { expires, next, due, ...key } = row;
  if (!due) return { key, expires };
  await count(db, "update sessions set expires = :next where token_sha256 = :hash", { next, hash });
  return { key, expires: next };
}

/** Ends a session; nothing happens when there is none. */
export async function endSession(db: Db, token: string): Promise<void> {
  await count(db, "delete from sessions where token_sha256 = :hash", { hash: secretSha256(token) });
}
