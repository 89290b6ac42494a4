import { stateNotFit } from "../calls/errors/index.ts";
import type { ApiKeyRow, Scope } from "../calls/index.ts";
import { type Db, run, transactionWithRetry } from "../lib/pg/index.ts";
import { lockApiKey } from "./api-keys.ts";
import { assertNoMoreRights } from "./more-rights.ts";

/**
 * Removes a revoked key permanently, with its sessions and old secrets. Deleted webhooks and events published with it
 * keep its id, which is never reused.
 *
 * @throws DomainError NOT_FOUND if the scope has no such key; FAILED_PRECONDITION if it is not revoked;
 *   PERMISSION_DENIED if it has more rights than the scope
 */
export function removeApiKey(db: Db, scope: Scope, id: string): Promise<ApiKeyRow> {
  return transactionWithRetry(db, async (trx) => {
    const key = await lockApiKey(trx, scope, id);
    assertNoMoreRights(scope, key, `the API key ${id}`);
    if (!key.revoked) {
      throw stateNotFit(
        `api_key_id: the API key ${id} is not revoked; only revoked keys can be removed: call RevokeApiKey first`,
      );
    }
    await run(trx, trx("sessions").where({ api_key_id: id }).delete());
    await run(trx, trx("api_key_old_secrets").where({ api_key_id: id }).delete());
    await run(trx, trx("event_quotas").where({ api_key_id: id }).delete());
    await run(trx, trx("api_keys").where({ id }).delete());
    return key;
  });
}
