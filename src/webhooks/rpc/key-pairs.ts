import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import type { WebhookKeyPairSchema, WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { auditedCall } from "../../audit/index.ts";
import { callerScope, noWebhook } from "../../calls/index.ts";
import { present, timestampOf } from "../../contract/present.ts";
import type { Db } from "../../lib/pg/index.ts";
import { deleteKeyPairs, type KeyPair, readKeyPairs, rotateKeyPair } from "../key-pairs.ts";
import type { SecretBox } from "../secret-box.ts";
import { lockShared } from "../shared-webhooks.ts";
import { eachOf } from "../webhook-changes.ts";
import { idsOf, requiredWebhook } from "../webhooks.ts";

type Methods = Pick<
  ServiceImpl<typeof WebhookService>,
  "getWebhookKeyPairs" | "rotateWebhookKeyPair" | "deleteWebhookKeyPairs"
>;

/** The methods for the key pairs that sign a webhook's requests beside its secrets. */
export function keyPairMethods({ db, secrets }: { db: Db; secrets: SecretBox }): Methods {
  return {
    async getWebhookKeyPairs({ webhookId }, handler) {
      await requiredWebhook(db, callerScope(handler), webhookId);
      return { keyPairs: messages(await readKeyPairs(db, secrets, webhookId)) };
    },

    async rotateWebhookKeyPair({ webhookId, revokeOldKeyPairs }, handler) {
      return auditedCall(db, handler, async (trx, record) => {
        const shared = await lockShared(trx, callerScope(handler), webhookId);
        if (shared.length === 0) throw noWebhook(webhookId);
        await rotateKeyPair(trx, secrets, idsOf(shared), revokeOldKeyPairs);
        const pairs = await readKeyPairs(trx, secrets, webhookId);
        await record(
          ...eachOf(shared, {
            action: "webhook_updated",
            after: { public_key: pairs[0]?.publicKey ?? null, old_key_pairs_revoked: revokeOldKeyPairs },
          }),
        );
        return { keyPairs: messages(pairs) };
      });
    },

    async deleteWebhookKeyPairs({ webhookId }, handler) {
      return auditedCall(db, handler, async (trx, record) => {
        const shared = await lockShared(trx, callerScope(handler), webhookId);
        if (shared.length === 0) throw noWebhook(webhookId);
        const deleted = await deleteKeyPairs(trx, idsOf(shared));
        if (deleted > 0) {
          const change = { before: { key_pairs: deleted }, after: { key_pairs: 0 } };
          await record(...eachOf(shared, { action: "webhook_updated", ...change }));
        }
        return {};
      });
    },
  };
}

function messages(pairs: readonly KeyPair[]): MessageInitShape<typeof WebhookKeyPairSchema>[] {
  return pairs.map(({ publicKey, expires }) => present({ publicKey, expires: timestampOf(expires) }));
}
