import { isDeepStrictEqual } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type {
  GetWebhookSecretResponseSchema,
  RotateWebhookSecretResponseSchema,
  WebhookService,
} from "../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../contract/catalogue.ts";
import { DomainError } from "../../../contract/errors.ts";
import { type AuditAction, webhookFacts, webhookTarget } from "../../../db/audit/audit-log.ts";
import type { Db } from "../../../db/database.ts";
import { queueTestEvent } from "../../../db/events/test-events.ts";
import type { ApiKeyRow } from "../../../db/keys/api-keys.ts";
import { withPartitions } from "../../../db/partitions.ts";
import { reachesWebhook, type Scope } from "../../../db/scope.ts";
import { readOverdueRetries } from "../../../db/webhooks/overdue-retries.ts";
import {
  readWebhookSecrets,
  rotateWebhookSecret,
  type WebhookSecret,
} from "../../../db/webhooks/webhook-secrets.ts";
import {
  createWebhook,
  deleteWebhook,
  getWebhook,
  listWebhooks,
  lockWebhook,
  setPaused,
  setRateLimit,
  type WebhookRow,
} from "../../../db/webhooks/webhooks.ts";
import { auditedCall } from "../../auth/actor.ts";
import { callerOf } from "../../auth/auth.ts";
import { callerScope } from "../../auth/caller-scope.ts";
import type { ApiContext } from "../../context.ts";
import { invalidFields } from "../../errors/errors.ts";
import { healthNames, isProcess, noWebhook, unknownProcess, webhookMessage } from "../messages.ts";
import { BY_ID, readPage } from "../paging.ts";
import { describeEventTypes } from "./event-types.ts";

/** In deliveries per second. */
const MAX_RATE_LIMIT = 10_000;

/** Manages webhooks (contract, section 4). */
export function webhookService({
  db,
  secrets,
  targets,
  limits,
  onQueued = () => {},
}: ApiContext): ServiceImpl<typeof WebhookService> {
  const processes = describeEventTypes();

  /** Changes a webhook of the caller's scope, and records what changed, if anything did. */
  function changeWebhook(
    handler: HandlerContext,
    id: bigint,
    action: AuditAction,
    change: (trx: Db) => Promise<WebhookRow | null>,
  ): Promise<WebhookRow> {
    return auditedCall(db, handler, async (trx, record) => {
      const before = await lockWebhook(trx, callerScope(handler), id);
      const webhook = before && (await change(trx));
      if (!webhook) throw noWebhook(id);
      const [was, is] = [webhookFacts(before), webhookFacts(webhook)];
      if (!isDeepStrictEqual(was, is)) {
        await record({ action, target: webhookTarget(webhook), before: was, after: is });
      }
      return webhook;
    });
  }

  return {
    async listWebhooks(request, handler) {
      const scope = callerScope(handler);
      const { health } = request;
      const wanted = health.length === 0 ? undefined : { scope, health: healthNames(health) };
      const { rows, nextPageToken } = await readPage(request, BY_ID, (page) =>
        listWebhooks(db, page, wanted),
      );
      return { webhooks: rows.map((webhook) => webhookMessage(webhook, scope)), nextPageToken };
    },

    async getWebhook(request, handler) {
      const scope = callerScope(handler);
      const webhook = await getWebhook(db, scope, request.webhookId);
      if (!webhook) throw noWebhook(request.webhookId);
      const overdue = await readOverdueRetries(db, request.webhookId);
      return {
        webhook: webhookMessage(webhook, scope),
        ...(overdue === null
          ? {}
          : { overdueRetries: { count: overdue.count, oldestDue: timestampFromDate(overdue.oldestDue) } }),
      };
    },

    async createWebhook(request, handler) {
      const { process, url } = request;
      if (!isProcess(process)) {
        throw invalidFields([{ field: "process", description: unknownProcess(process) }]);
      }
      const caller = callerOf(handler);
      assertMaySubscribe(caller, process);
      // URL parsing drops some of these, but the URL is stored as given.
      if (/\p{Cc}/u.test(url) || !url.isWellFormed()) {
        throw invalidFields([{ field: "url", description: "must not hold control characters" }]);
      }
      const registration = { process, url, targetUrl: targets.normalise(url), apiKeyId: caller.id };
      const made = await auditedCall(db, handler, async (trx, record) => {
        const result = await createWebhook(trx, secrets, registration, limits.maxWebhooks);
        const { webhook, created } = result;
        if (created) {
          await record({
            action: "webhook_created",
            target: webhookTarget(webhook),
            after: webhookFacts(webhook),
          });
        }
        return result;
      });
      const scope = callerScope(handler);
      return {
        webhook: webhookMessage(made.webhook, scope),
        created: made.created,
        warnings: made.webhook.apiKeyId === caller.id ? [] : [ownedByAnother(made.webhook, scope)],
      };
    },

    async deleteWebhook(request, handler) {
      const deleted = await auditedCall(db, handler, async (trx, record) => {
        const webhook = await deleteWebhook(trx, request.webhookId);
        if (!webhook) throw noWebhook(request.webhookId);
        await record({
          action: "webhook_deleted",
          target: webhookTarget(webhook),
          before: webhookFacts(webhook),
        });
        return webhook;
      });
      return { webhook: webhookMessage(deleted, callerScope(handler)) };
    },

    async listProcesses() {
      return { processes };
    },

    async setWebhookRateLimit(request, handler) {
      const { webhookId, rateLimit } = request;
      if (rateLimit !== undefined && (rateLimit < 1 || rateLimit > MAX_RATE_LIMIT)) {
        throw invalidFields([
          {
            field: "rate_limit",
            description: `must be 1 to ${MAX_RATE_LIMIT} deliveries a second, or unset`,
          },
        ]);
      }
      const scope = callerScope(handler);
      const webhook = await changeWebhook(handler, webhookId, "webhook_updated", (trx) =>
        setRateLimit(trx, scope, webhookId, rateLimit ?? null),
      );
      return { webhook: webhookMessage(webhook, scope) };
    },

    async pauseWebhook(request, handler) {
      const scope = callerScope(handler);
      const webhook = await changeWebhook(handler, request.webhookId, "webhook_paused", (trx) =>
        setPaused(trx, scope, request.webhookId, true),
      );
      return { webhook: webhookMessage(webhook, scope) };
    },

    async resumeWebhook(request, handler) {
      const scope = callerScope(handler);
      const webhook = await changeWebhook(handler, request.webhookId, "webhook_resumed", (trx) =>
        setPaused(trx, scope, request.webhookId, false),
      );
      onQueued();
      return { webhook: webhookMessage(webhook, scope) };
    },

    async sendTestEvent(request, handler) {
      const { webhookId } = request;
      const scope = callerScope(handler);
      const webhook = await getWebhook(db, scope, webhookId);
      if (!webhook) throw noWebhook(webhookId);
      const sample = processes.find(({ number }) => number === webhook.process)?.sample;
      if (sample === undefined) {
        throw notNow(
          `webhook ${webhookId} is for event type ${webhook.process}, which this version does not know`,
        );
      }
      if (webhook.paused) throw notNow(`webhook ${webhookId} is paused: resume it, then send the test event`);
      const queued = await withPartitions(db, () =>
        auditedCall(db, handler, async (trx, record) => {
          const event = { apiKeyId: callerOf(handler).id, webhookId, payload: sample };
          const made = await queueTestEvent(trx, scope, event);
          if (made) {
            await record({
              action: "test_event_sent",
              target: webhookTarget(webhook),
              after: { event_id: made.eventId, delivery_id: made.deliveryId },
            });
          }
          return made;
        }),
      );
      if (!queued)
        throw notNow(`webhook ${webhookId} was paused or deleted just now; look at it and try again`);
      onQueued();
      return queued;
    },

    async getWebhookSecret(request, handler) {
      const { webhookId } = request;
      const scope = callerScope(handler);
      return auditedCall(db, handler, async (trx, record) => {
        const found = await readWebhookSecrets(trx, secrets, scope, webhookId);
        const webhook = found && (await getWebhook(trx, scope, webhookId));
        if (webhook) await record({ action: "webhook_secret_read", target: webhookTarget(webhook) });
        return secretsMessage(found, webhookId);
      });
    },

    async rotateWebhookSecret(request, handler) {
      const { webhookId, revokeOldSecrets } = request;
      const scope = callerScope(handler);
      return auditedCall(db, handler, async (trx, record) => {
        const rotated = await rotateWebhookSecret(trx, secrets, scope, webhookId, revokeOldSecrets);
        const webhook = rotated ? await getWebhook(trx, scope, webhookId) : null;
        if (!webhook) throw noWebhook(webhookId);
        await record({
          action: "webhook_secret_rotated",
          target: webhookTarget(webhook),
          after: { old_secrets_revoked: revokeOldSecrets },
        });
        return secretsMessage(await readWebhookSecrets(trx, secrets, scope, webhookId), webhookId);
      });
    },
  };
}

/** All valid secrets, newest first, and the newest one separately. */
function secretsMessage(
  found: WebhookSecret[] | null,
  webhookId: bigint,
): MessageInitShape<typeof GetWebhookSecretResponseSchema> &
  MessageInitShape<typeof RotateWebhookSecretResponseSchema> {
  if (!found) throw noWebhook(webhookId);
  const told = found.map(({ secret, expires }) => ({
    secret: `whsec_${secret.toString("base64")}`,
    ...(expires === null ? {} : { expires: timestampFromDate(expires) }),
  }));
  return { secret: told[0]?.secret ?? "", secrets: told };
}

/** The key determines which event types may be subscribed to (contract, section 5, rule 4). */
function assertMaySubscribe(caller: ApiKeyRow, process: number): void {
  if (caller.allowedProcesses.length === 0 || caller.allowedProcesses.includes(process)) return;
  throw new DomainError(
    "PERMISSION_DENIED",
    `the API key may not subscribe to ${processName(process)}, only to ${caller.allowedProcesses.map(processName).join(", ")}`,
    { reason: "PROCESS_NOT_ALLOWED" },
  );
}

/** The note about a webhook that already existed. Its owner is hidden from other apps. */
function ownedByAnother(webhook: WebhookRow, scope: Scope): string {
  const found = `webhook ${webhook.id} was registered for this event type and URL before, with another API key; nothing was changed`;
  if (reachesWebhook(scope, webhook)) return found;
  return `${found}, and your key cannot read its signing secret or its deliveries: register another URL for a webhook of your own`;
}

function notNow(message: string): DomainError {
  return new DomainError("FAILED_PRECONDITION", message, { reason: "STATE_NOT_FIT" });
}
