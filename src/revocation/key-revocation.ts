import type { AuditRecord } from "../audit/index.ts";
import { stateNotFit } from "../calls/errors/index.ts";
import { type ApiKeyRow, type Scope, scopeOf } from "../calls/index.ts";
import { processNames } from "../contract/catalogue.ts";
import {
  assertNoMoreRights,
  assertWebhookQuota,
  keyTarget,
  lockApiKeys,
  markRevoked,
  noSuchKey,
  type RevokeKey,
} from "../keys/index.ts";
import { type Db, transactionWithRetry } from "../lib/pg/index.ts";
import { cancelFirst } from "../queue/index.ts";
import {
  deleteWebhooks,
  ownsOutside,
  processesOfKey,
  transferWebhooks,
  webhookTarget,
} from "../webhooks/index.ts";

/** Ends what a key has started, in the transaction of its revocation. Returns the number of what has ended. */
type EndOfKey = (trx: Db, apiKeyId: string) => Promise<number>;

/**
 * Makes the function that revokes a key, transfers or deletes its webhooks, and ends what it has started, in one transaction. It throws
 * DomainError NOT_FOUND or FAILED_PRECONDITION if the scope lacks either key, either is revoked, or the receiving key belongs to
 * another customer or app, may not subscribe to the event types or has no room in its quota; PERMISSION_DENIED if the key has
 * more rights than the scope.
 *
 * @param ends end what keys have started, by the names of their numbers in the audit log
 */
export function keyRevocation(ends: Readonly<Record<string, EndOfKey>>): RevokeKey {
  return (db, scope, id, fate) =>
    transactionWithRetry(db, async (trx) => {
      const locked = await lockApiKeys(trx, scope, fate === "delete" ? [id] : [id, fate.transferTo]);
      const from = usable(locked, id, "api_key_id");
      assertNoMoreRights(scope, from, `the API key ${id}`);
      await assertOwnWebhooks(trx, scope, id);
      const others: [fact: string, ended: number][] = [];
      for (const [fact, end] of Object.entries(ends)) others.push([fact, await end(trx, id)]);
      const to = fate === "delete" ? undefined : usable(locked, fate.transferTo, "transfer_to_key_id");
      if (to) assertSameCustomer(from, to);
      if (to) await assertMayReceive(trx, id, to);
      const key = await markRevoked(trx, id);
      const deleted = to ? [] : await deleteWebhooks(trx, { apiKeyId: id }, cancelFirst);
      const transferred = to ? await transferWebhooks(trx, id, to.id) : [];
      if (to && transferred.length > 0) await assertWebhookQuota(trx, to.id, 0);
      const before = { api_key_id: id };
      const after = {
        revoked: true,
        ...(to
          ? { webhooks_transferred: transferred.length, transfer_to_key_id: to.id }
          : { webhooks_deleted: deleted.length }),
        ...Object.fromEntries(others.filter(([, ended]) => ended > 0)),
      };
      const entries: AuditRecord[] = [
        { action: "api_key_revoked", target: keyTarget(key), before: { revoked: false }, after },
        ...deleted.map((webhook): AuditRecord => {
          return { action: "webhook_deleted", target: webhookTarget(webhook), before };
        }),
        ...transferred.map((webhook): AuditRecord => {
          const moved = { api_key_id: webhook.apiKeyId };
          return { action: "webhook_transferred", target: webhookTarget(webhook), before, after: moved };
        }),
      ];
      return { key, transferred: transferred.length, deleted: deleted.length, entries };
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
