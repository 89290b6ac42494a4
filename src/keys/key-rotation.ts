import { stateNotFit } from "../calls/errors/index.ts";
import type { ApiKeyRow, Scope } from "../calls/index.ts";
import { DomainError } from "../contract/errors.ts";
import { count, type Db, run, transactionWithRetry } from "../lib/pg/index.ts";
import {
  API_KEY_SELECTION,
  generateApiKeySecret,
  type ListedApiKey,
  lockApiKey,
  secretPrefix,
  secretSha256,
} from "./api-keys.ts";
import { assertNoMoreRights } from "./more-rights.ts";

/** The maximum number of valid secrets of a key, including the current one. */
const MAX_SECRETS = 5;

/**
 * Replaces the secret of a key. Its id, permissions and webhooks stay the same.
 *
 * @param graceMs the time for which the current secret stays valid, in milliseconds; 0 revokes it and all earlier
 *   ones immediately
 * @returns the key, the secret, and the prefix of the one before. Only this response contains the secret
 * @throws DomainError NOT_FOUND or FAILED_PRECONDITION if the scope has no such key, it is revoked, or it has the
 *   maximum number of valid secrets; PERMISSION_DENIED if it has more rights than the scope
 */
export function rotateApiKey(
  db: Db,
  scope: Scope,
  id: string,
  graceMs: number,
): Promise<{ key: ListedApiKey; secret: string; oldPrefix: string }> {
  return transactionWithRetry(db, async (trx) => {
    const key = await lockApiKey(trx, scope, id);
    assertNoMoreRights(scope, key, `the API key ${id}`);
    if (key.revoked) {
      throw stateNotFit(`api_key_id: the API key ${id} is revoked and cannot be rotated; create another key`);
    }
    const old = trx("api_key_old_secrets").where({ api_key_id: id });
    await run(trx, (graceMs === 0 ? old : old.where("expires", "<=", trx.fn.now())).delete());
    const oldSecretsExpire = graceMs === 0 ? null : await keepSecret(trx, id, graceMs);
    const secret = generateApiKeySecret();
    const [row] = await run(
      trx,
      trx("api_keys")
        .where({ id })
        .update({ secret_sha256: secretSha256(secret), prefix: secretPrefix(secret) })
        .returning<ApiKeyRow[]>(API_KEY_SELECTION),
    );
    return { key: { ...(row as ApiKeyRow), oldSecretsExpire }, secret, oldPrefix: key.prefix };
  });
}

/** Keeps the current secret valid for the grace period. Returns the expiry of the last old secret. */
async function keepSecret(trx: Db, id: string, graceMs: number): Promise<Date> {
  const old = () => trx("api_key_old_secrets").where({ api_key_id: id }).select("expires").orderBy("expires");
  const known = await run(trx, old());
  if (known[0] && known.length >= MAX_SECRETS - 1) {
    throw new DomainError(
      "TOO_MANY_SECRETS",
      `the API key ${id} has ${MAX_SECRETS} valid secrets, the maximum; rotate again after ${known[0].expires.toISOString()}, when the first expires, or without grace_period, which revokes all old ones immediately`,
    );
  }
  await count(
    trx,
    `insert into api_key_old_secrets (secret_sha256, api_key_id, expires)
      select secret_sha256, id, now() + make_interval(secs => :graceMs::float8 / 1000) from api_keys where id = :id::uuid
      on conflict (secret_sha256) do update set api_key_id = excluded.api_key_id, expires = excluded.expires`,
    { id, graceMs },
  );
  return (await run(trx, old())).at(-1)?.expires as Date;
}

/** Deletes secrets of keys from before a rotation that have expired. */
export async function forgetExpiredKeySecrets(db: Db): Promise<void> {
  await run(db, db("api_key_old_secrets").where("expires", "<=", db.fn.now()).delete());
}
