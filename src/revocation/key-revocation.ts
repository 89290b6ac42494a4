import { stateNotFit } from "../calls/errors/index.ts";
import { type ApiKeyRow, type Scope, scopeOf } from "../calls/index.ts";
import { processNames } from "../contract/catalogue.ts";
import {
  assertNoMoreRights,
  assertWebhookQuota,
  lockApiKeys,
  markRevoked,
  noSuchKey,
  type WebhooksFate,
} from "../keys/index.ts";
import { type Db, transactionWithRetry } from "../lib/pg/index.ts";
import { cancelFirst } from "../queue/index.ts";
import { cancelReplaysOfKey } from "../replays/index.ts";
import {
  deleteWebhooks,
  ownsOutside,
  processesOfKey,
  transferWebhooks,
  type WebhookRow,
} from "../webhooks/index.ts";
/** The result of a revocation. */
export interface Revocation {
  key: ApiKeyRow;
  transferred: WebhookRow[];
  deleted: WebhookRow[];
  /** The number of its open replays, which are cancelled. */
  replaysCancelled: number;
}

/**
 * Revokes a key, transfers or deletes its webhooks and cancels its replays, in one transaction.
 *
 * @throws DomainError NOT_FOUND or FAILED_PRECONDITION if the scope lacks either key, either is revoked, or the
 *   receiving key belongs to another customer or app, may not subscribe to the event types or has no room in its quota;
 *   PERMISSION_DENIED if the key has
 *   more rights than the scope
 */
export function revokeApiKey(db: Db, scope: Scope, id: string, fate: WebhooksFate): Promise<Revocation> {
  return transactionWithRetry(db, async (trx) => {
    const locked = await lockApiKeys(trx, scope, fate === "delete" ? [id] : [id, fate.transferTo]);
    assertNoMoreRights(scope, usable(locked, id, "api_key_id"), `the API key ${id}`);
    await assertOwnWebhooks(trx, scope, id);
    const replaysCancelled = await cancelReplaysOfKey(trx, id);
    if (fate === "delete") {
      const key = await markRevoked(trx, id);
      return {
        key,
        transferred: [],
        deleted: await deleteWebhooks(trx, { apiKeyId: id }, cancelFirst),
        replaysCancelled,
      };
    }
    const to = usable(locked, fate.transferTo, "transfer_to_key_id");
    assertSameCustomer(usable(locked, id, "api_key_id"), to);
    await assertMayReceive(trx, id, to);
    const key = await markRevoked(trx, id);
    const transferred = await transferWebhooks(trx, id, fate.transferTo);
    if (transferred.length > 0) await assertWebhookQuota(trx, fate.transferTo, 0);
    return { key, transferred, deleted: [], replaysCancelled };
  });
}

function usable(locked: readonly ApiKeyRow[], id: string, field: string): ApiKeyRow {
  const key = locked.find((row) => row.id === id);
  if (!key) throw noSuchKey(field, id);
  if (key.revoked) throw stateNotFit(`${field}: the API key ${id} is already revoked; choose an active key`);
  return key;
}

/** A key of an app must not change webhooks outside its scope. */
async function assertOwnWebhooks(trx: Db, scope: Scope, id: string): Promise<void> {
  if (!(await ownsOutside(trx, scope, id))) return;
  throw stateNotFit(
    `api_key_id: the API key ${id} owns webhooks outside your key's scope; revoke it with a key without an app`,
  );
}

/** Webhooks keep the customer of their first key. */
function assertSameCustomer(from: ApiKeyRow, to: ApiKeyRow): void {
  if (from.customer === to.customer) return;
  throw stateNotFit(
    `transfer_to_key_id: the API keys ${from.id} and ${to.id} do not belong to the same customer, and webhooks stay with their customer; choose a key of the same customer, or delete the webhooks`,
  );
}

/** A key of an app may only own webhooks of its app; a key without an app may own any. */
async function assertMayReceive(trx: Db, from: string, to: ApiKeyRow): Promise<void> {
  if (await ownsOutside(trx, scopeOf({ ...to, allowedProcesses: [] }), from)) {
    throw stateNotFit(
      `transfer_to_key_id: the API key ${to.id} belongs to an installed app, but some webhooks do not belong to that app; choose a key of their app or a key without an app, or delete the webhooks`,
    );
  }
  if (to.allowedProcesses.length === 0) return;
  const refused = (await processesOfKey(trx, from)).filter(
    (process) => !to.allowedProcesses.includes(process),
  );
  if (refused.length === 0) return;
  throw stateNotFit(
    `transfer_to_key_id: the API key ${to.id} may not subscribe to ${processNames(refused)}; choose a key that may, or delete the webhooks`,
  );
}
