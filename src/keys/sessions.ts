import { randomBytes } from "node:crypto";
import type { ApiKeyRow } from "../calls/index.ts";
import { type Db, rows, run } from "../lib/pg/index.ts";
import { API_KEY_COLUMNS, secretSha256 } from "./api-keys.ts";

/** The inactivity timeout of a session, in hours. */
const IDLE_TIMEOUT_HOURS = 12;
/** The maximum lifetime of a session, in days. */
const MAX_LIFETIME_DAYS = 7;
/** The minimum extension of a session that is written to the database, in minutes. */
const MIN_EXTENSION_MINUTES = 5;

/** The maximum number of sessions per key. A further one ends the oldest. */
const MAX_SESSIONS_PER_KEY = 100;

/** The maximum lifetime of a session, in seconds. */
export const MAX_SESSION_SECONDS = MAX_LIFETIME_DAYS * 24 * 3_600;

/** An active session. */
export interface SessionRow {
  key: ApiKeyRow;
  expires: Date;
}

/**
 * Starts a session of a key, ends the key's oldest ones beyond the maximum, and deletes expired sessions.
 *
 * @param secret a valid secret of the key
 * @returns the token; null if the secret was rotated away or the key revoked in the meantime. Only this response
 *   contains the token: its SHA-256 is stored
 */
export async function startSession(
  db: Db,
  keyId: string,
  secret: string,
): Promise<{ token: string; expires: Date } | null> {
  await run(db, db("sessions").where("expires", "<=", db.fn.now()).delete());
  const token = randomBytes(32).toString("base64url");
  const [row] = await rows<{ expires: Date }>(
    db,
    `insert into sessions (token_sha256, api_key_id, key_secret_sha256, secret_sha256, expires)
      select :token, k.id, k.secret_sha256, :secret,
        least(now() + make_interval(hours => ${IDLE_TIMEOUT_HOURS}), o.expires)
      from api_keys k left join api_key_old_secrets o
        on o.secret_sha256 = :secret and o.api_key_id = k.id and o.expires > now()
      where k.id = :keyId::uuid and k.revoked is null and (k.secret_sha256 = :secret or o.expires is not null)
      returning expires`,
    { token: secretSha256(token), keyId, secret: secretSha256(secret) },
  );
  if (!row) return null;
  const oldest = db("sessions")
    .select("token_sha256")
    .where({ api_key_id: keyId })
    .orderBy("started", "desc")
    .offset(MAX_SESSIONS_PER_KEY);
  await run(db, db("sessions").whereIn("token_sha256", oldest).delete());
  return { token, expires: row.expires };
}

/**
 * The session with this token, extended by this use; null if it has ended: by expiry, sign-out, revocation or
 * rotation of its key, or the end of the grace period of the secret that started it.
 */
export async function findSession(db: Db, token: string): Promise<SessionRow | null> {
  const hash = secretSha256(token);
  const [row] = await rows<ApiKeyRow & { expires: Date; next: Date; due: boolean }>(
    db,
    `select ${API_KEY_COLUMNS}, expires, next, next > expires + make_interval(mins => ${MIN_EXTENSION_MINUTES}) as due
      from (select s.api_key_id, s.key_secret_sha256, s.expires,
          s.secret_sha256 = s.key_secret_sha256 or o.expires is not null as works,
          least(now() + make_interval(hours => ${IDLE_TIMEOUT_HOURS}), s.started + make_interval(days => ${MAX_LIFETIME_DAYS}),
            o.expires) as next
        from sessions s left join api_key_old_secrets o
          on o.secret_sha256 = s.secret_sha256 and o.api_key_id = s.api_key_id and o.expires > now()
        where s.token_sha256 = :hash and s.expires > now()) session
      join api_keys on id = api_key_id and secret_sha256 = key_secret_sha256
      where works and revoked is null`,
    { hash },
  );
  if (!row) return null;
  const { expires, next, due, ...key } = row;
  if (!due) return { key, expires };
  await run(db, db("sessions").where({ token_sha256: hash }).update({ expires: next }));
  return { key, expires: next };
}

/** Identifies a session without its token, as in the audit log: the first 16 hexadecimal digits of the token's hash. */
export function sessionIdOf(token: string): string {
  return secretSha256(token).toString("hex").slice(0, 16);
}

/** Ends a session. Returns whether there was one. */
export async function endSession(db: Db, token: string): Promise<boolean> {
  const ended = await run(
    db,
    db("sessions")
      .where({ token_sha256: secretSha256(token) })
      .delete(),
  );
  return ended > 0;
}
