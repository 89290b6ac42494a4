import { DomainError } from "../../contract/errors.ts";
import { count, type Db, rows } from "../database.ts";
import { transactionWithRetry } from "../deadlock.ts";
import { assertNoMoreRights, type Scope } from "../scope.ts";
import {
  API_KEY_COLUMNS,
  type ApiKeyRow,
  generateApiKeySecret,
  type ListedApiKey,
  lockApiKeys,
  secretPrefix,
  secretSha256,
} from "./api-keys.ts";

/** The maximum number of valid secrets of a key, including the current one. */
const MAX_SECRETS = 5;

/**
 * Replaces the secret of a key. Its id, permissions and webhooks stay the same.
 *
 * @param graceMs the time for which the current secret stays valid, in milliseconds; 0 revokes it and all earlier
 *   ones immediately
 * @returns the key and the secret. Only this response contains the secret
 * @throws DomainError NOT_FOUND or FAILED_PRECONDITION if the scope has no such key, it is revoked, or it has the
 *   maximum number of valid secrets; PERMISSION_DENIED if it has more rights than the scope
 */
export function rotateApiKey(
  db: Db,
  scope: Scope,
  id: string,
  graceMs: number,
): Promise<{ key: ListedApiKey; secret: string }> {
  return transactionWithRetry(db, async (trx) => {
    const [key] = await lockApiKeys(trx, scope, [id]);
    if (!key)
      throw new DomainError("NOT_FOUND", `api_key_id: there is no API key ${id}`, {
        reason: "API_KEY_NOT_FOUND",
      });
    assertNoMoreRights(scope, key, `the API key ${id}`);
    if (key.revoked) {
      throw new DomainError(
        "FAILED_PRECONDITION",
        `api_key_id: the API key ${id} is revoked and cannot be rotated; create another key`,
      );
    }
    await count(
      trx,
      "delete from api_key_old_secrets where api_key_id = :id::uuid and (:all::boolean or expires <= now())",
      { id, all: graceMs === 0 },
    );
    const oldSecretsExpire = graceMs === 0 ? null : await keepSecret(trx, id, graceMs);
    const secret = generateApiKeySecret();
    const [row] = await rows<ApiKeyRow>(
      trx,
      `update api_keys set secret_sha256 = :hash, prefix = :prefix where id = :id::uuid returning ${API_KEY_COLUMNS}`,
      { id, hash: secretSha256(secret), prefix: secretPrefix(secret) },
    );
    return { key: { ...(row as ApiKeyRow), oldSecretsExpire }, secret };
  });
}

/** Keeps the current secret valid for the grace period. Returns the expiry of the last old secret. */
async function keepSecret(trx: Db, id: string, graceMs: number): Promise<Date> {
  const [old] = await rows<{ n: number; first: Date | null }>(
    trx,
    "select count(*)::int as n, min(expires) as first from api_key_old_secrets where api_key_id = :id::uuid",
    { id },
  );
  if (old?.first && old.n >= MAX_SECRETS - 1) {
    throw new DomainError(
      "FAILED_PRECONDITION",
      `the API key ${id} has ${MAX_SECRETS} valid secrets, the maximum; rotate again after ${old.first.toISOString()}, when the first expires, or without grace_period, which revokes all old ones immediately`,
      { reason: "TOO_MANY_SECRETS" },
    );
  }
  await count(
    trx,
    `insert into api_key_old_secrets (secret_sha256, api_key_id, expires)
      select secret_sha256, id, now() + make_interval(secs => :graceMs::float8 / 1000) from api_keys where id = :id::uuid
      on conflict (secret_sha256) do update set api_key_id = excluded.api_key_id, expires = excluded.expires`,
    { id, graceMs },
  );
  const [last] = await rows<{ expires: Date }>(
    trx,
    "select max(expires) as expires from api_key_old_secrets where api_key_id = :id::uuid",
    { id },
  );
  return last?.expires as Date;
}
