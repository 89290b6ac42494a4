import type { AuditRecord } from "../audit/index.ts";
import { keyTarget, type RevokeKey, type WebhooksFate } from "../keys/index.ts";
import { webhookTarget } from "../webhooks/index.ts";
import { type Revocation, revokeApiKey } from "./key-revocation.ts";

/** Revokes a key for a caller of the API. */
export const revokeKey: RevokeKey = async (trx, scope, id, fate) => {
  const revocation = await revokeApiKey(trx, scope, id, fate);
  return {
    key: revocation.key,
    transferred: revocation.transferred.length,
    deleted: revocation.deleted.length,
    entries: keyRevoked(revocation, fate),
  };
};

/** The entries about a revoked key and about each of its webhooks. */
function keyRevoked(
  { key, transferred, deleted, replaysCancelled }: Revocation,
  fate: WebhooksFate,
): AuditRecord[] {
  return [
    {
      action: "api_key_revoked",
      target: keyTarget(key),
      before: { revoked: false },
      after: {
        revoked: true,
        ...(fate === "delete"
          ? { webhooks_deleted: deleted.length }
          : { webhooks_transferred: transferred.length, transfer_to_key_id: fate.transferTo }),
        ...(replaysCancelled === 0 ? {} : { replays_cancelled: replaysCancelled }),
      },
    },
    ...deleted.map(
      (webhook): AuditRecord => ({
        action: "webhook_deleted",
        target: webhookTarget(webhook),
        before: { api_key_id: key.id },
      }),
    ),
    ...transferred.map(
      (webhook): AuditRecord => ({
        action: "webhook_transferred",
        target: webhookTarget(webhook),
        before: { api_key_id: key.id },
        after: { api_key_id: webhook.apiKeyId },
      }),
    ),
  ];
}
