import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import {
  CreateWebhookRequestSchema,
  DeleteWebhookRequestSchema,
  GetWebhookSecretRequestSchema,
  type GetWebhookSecretResponseSchema,
  RotateWebhookSecretRequestSchema,
  type RotateWebhookSecretResponseSchema,
  SetWebhookRateLimitRequestSchema,
  type WebhookService,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../catalogue.ts";
import type { ApiKeyRow } from "../../db/api-keys.ts";
import { readWebhookSecrets, rotateWebhookSecret, type WebhookSecret } from "../../db/webhook-secrets.ts";
import { createWebhook, deleteWebhook, listWebhooks, setRateLimit } from "../../db/webhooks.ts";
import { DomainError } from "../../domain-error.ts";
import { callerOf } from "../auth.ts";
import type { ApiContext } from "../context.ts";
import { invalidFields } from "../errors.ts";
import { describeEventTypes } from "../event-types.ts";
import { assertFields, isProcess, unknownProcess, webhookMessage } from "./messages.ts";

/** In deliveries a second. */
const MAX_RATE_LIMIT = 10_000;

/** Registers the addresses that events are delivered to (contract, section 4). */
export function webhookService({
  db,
  secrets,
  targets,
  limits,
}: ApiContext): ServiceImpl<typeof WebhookService> {
  const processes = describeEventTypes();
  return {
    async listWebhooks() {
      return { webhooks: (await listWebhooks(db)).map(webhookMessage) };
    },

    async createWebhook(request, handler) {
      assertFields(CreateWebhookRequestSchema, request);
      const { process, url } = request;
      if (!isProcess(process)) {
        throw invalidFields([{ field: "process", description: unknownProcess(process) }]);
      }
      const caller = callerOf(handler);
      assertMaySubscribe(caller, process);
      // URL parsing drops some of these, yet the address is stored as it was given.
      if (/\p{Cc}/u.test(url) || !url.isWellFormed()) {
        throw invalidFields([{ field: "url", description: "must not hold control characters" }]);
      }
      const registration = { process, url, targetUrl: targets.normalise(url), apiKeyId: caller.id };
      const made = await createWebhook(db, secrets, registration, limits.maxWebhooks);
      return { webhook: webhookMessage(made.webhook), created: made.created };
    },

    async deleteWebhook(request) {
      assertFields(DeleteWebhookRequestSchema, request);
      const deleted = await deleteWebhook(db, request.webhookId);
      if (!deleted) throw noWebhook(request.webhookId);
      return { webhook: webhookMessage(deleted) };
    },

    async listProcesses() {
      return { processes };
    },

    async setWebhookRateLimit(request) {
      assertFields(SetWebhookRateLimitRequestSchema, request);
      const { webhookId, rateLimit } = request;
      if (rateLimit !== undefined && (rateLimit < 1 || rateLimit > MAX_RATE_LIMIT)) {
        throw invalidFields([
          {
            field: "rate_limit",
            description: `must be 1 to ${MAX_RATE_LIMIT} deliveries a second, or unset`,
          },
        ]);
      }
      const webhook = await setRateLimit(db, webhookId, rateLimit ?? null);
      if (!webhook) throw noWebhook(webhookId);
      return { webhook: webhookMessage(webhook) };
    },

    async getWebhookSecret(request) {
      assertFields(GetWebhookSecretRequestSchema, request);
      return secretsMessage(await readWebhookSecrets(db, secrets, request.webhookId), request.webhookId);
    },

    async rotateWebhookSecret(request) {
      assertFields(RotateWebhookSecretRequestSchema, request);
      if (!(await rotateWebhookSecret(db, secrets, request.webhookId))) throw noWebhook(request.webhookId);
      return secretsMessage(await readWebhookSecrets(db, secrets, request.webhookId), request.webhookId);
    },
  };
}

/** Every secret that signs, newest first; the newest apart too. */
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

/** The key determines which events may be subscribed to (contract, section 5, rule 4). */
function assertMaySubscribe(caller: ApiKeyRow, process: number): void {
  if (caller.allowedProcesses.length === 0 || caller.allowedProcesses.includes(process)) return;
  throw new DomainError(
    "PERMISSION_DENIED",
    `the API key may not subscribe to ${processName(process)}, only to ${caller.allowedProcesses.map(processName).join(", ")}`,
    { reason: "PROCESS_NOT_ALLOWED" },
  );
}

function noWebhook(id: bigint): DomainError {
  return new DomainError("NOT_FOUND", `there is no webhook ${id}; list the webhooks to find its Id`, {
    reason: "WEBHOOK_NOT_FOUND",
  });
}
