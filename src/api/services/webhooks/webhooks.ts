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
import { invisibleCharacter } from "../../../contract/invisible-characters.ts";
import type { TargetRules } from "../../../contract/target-rules.ts";
import { queueTestEvent } from "../../../db/events/test-events.ts";
import type { ApiKeyRow } from "../../../db/keys/api-keys.ts";
import { reachesWebhook, type Scope } from "../../../db/scope.ts";
import { readOverdueRetries } from "../../../db/webhooks/overdue-retries.ts";
import {
  readWebhookSecrets,
  rotateWebhookSecret,
  type WebhookSecret,
} from "../../../db/webhooks/webhook-secrets.ts";
import { updateWebhook, type WebhookChanges } from "../../../db/webhooks/webhook-update.ts";
import {
  createWebhook,
  deleteWebhook,
  getWebhook,
  listWebhooks,
  type WebhookRow,
} from "../../../db/webhooks/webhooks.ts";
import { callerOf } from "../../auth/auth.ts";
import { callerScope } from "../../auth/caller-scope.ts";
import type { ApiContext } from "../../context.ts";
import { invalidFields } from "../../errors/errors.ts";
import {
  assertText,
  healthNames,
  isProcess,
  noWebhook,
  unknownProcess,
  webhookMessage,
} from "../messages.ts";
import { BY_ID, readPage } from "../paging.ts";
import { describeEventTypes } from "./event-types.ts";

/** The maximum length of a webhook's name, in characters. */
const MAX_NAME_CHARACTERS = 100;
/** The maximum size of a test event's payload, in bytes. As a JSON string it fits into a request of 64 KiB. */
const MAX_TEST_PAYLOAD_BYTES = 32_768;
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

  /** Changes a webhook of the caller's scope. @throws DomainError NOT_FOUND if there is none with this id */
  async function change(
    handler: HandlerContext,
    webhookId: bigint,
    changes: WebhookChanges,
    revision?: bigint,
  ) {
    const scope = callerScope(handler);
    const options = revision === undefined ? {} : { revision };
    const webhook = await updateWebhook(db, scope, webhookId, changes, options);
    if (!webhook) throw noWebhook(webhookId);
    // Its pending deliveries can be sent now.
    if (changes.paused === false) onQueued();
    return { webhook: webhookMessage(webhook, scope) };
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
      const registration = { process, ...checkedAddress(targets, url), apiKeyId: caller.id };
      const made = await createWebhook(db, secrets, registration, limits.maxWebhooks);
      const scope = callerScope(handler);
      return {
        webhook: webhookMessage(made.webhook, scope),
        created: made.created,
        warnings: made.webhook.apiKeyId === caller.id ? [] : [ownedByAnother(made.webhook, scope)],
      };
    },

    async deleteWebhook(request, handler) {
      const deleted = await deleteWebhook(db, request.webhookId);
      if (!deleted) throw noWebhook(request.webhookId);
      return { webhook: webhookMessage(deleted, callerScope(handler)) };
    },

    async listProcesses() {
      return { processes };
    },

    async updateWebhook({ webhookId, revision, name, url, rateLimit, paused }, handler) {
      const changes: WebhookChanges = {
        ...(name === undefined ? {} : { name: checkedName(name) }),
        ...(url === undefined ? {} : { address: checkedAddress(targets, url) }),
        ...(rateLimit === undefined
          ? {}
          : { rateLimit: rateLimit === 0 ? null : checkedRateLimit(rateLimit) }),
        ...(paused === undefined ? {} : { paused }),
      };
      return change(handler, webhookId, changes, revision);
    },

    setWebhookRateLimit: ({ webhookId, rateLimit }, handler) =>
      change(handler, webhookId, { rateLimit: rateLimit === undefined ? null : checkedRateLimit(rateLimit) }),

    pauseWebhook: ({ webhookId }, handler) => change(handler, webhookId, { paused: true }),

    resumeWebhook: ({ webhookId }, handler) => change(handler, webhookId, { paused: false }),

    async sendTestEvent({ webhookId, process: chosen, payload }, handler) {
      const scope = callerScope(handler);
      const webhook = await getWebhook(db, scope, webhookId);
      if (!webhook) throw noWebhook(webhookId);
      const process = chosen || webhook.process;
      if (chosen && !isProcess(chosen)) {
        throw invalidFields([{ field: "process", description: unknownProcess(chosen) }]);
      }
      const caller = callerOf(handler);
      if (process !== webhook.process) assertMaySubscribe(caller, process);
      const sample = processes.find(({ number }) => number === process)?.sample;
      if (sample === undefined) {
        throw notNow(`webhook ${webhookId} is for event type ${process}, which this version does not know`);
      }
      const body = payload === undefined ? sample : checkedPayload(payload);
      const queued = await queueTestEvent(db, scope, {
        apiKeyId: caller.id,
        webhookId,
        process,
        payload: body,
      });
      if (!queued) throw noWebhook(webhookId);
      onQueued();
      return queued;
    },

    async getWebhookSecret(request, handler) {
      const { webhookId } = request;
      return secretsMessage(
        await readWebhookSecrets(db, secrets, callerScope(handler), webhookId),
        webhookId,
      );
    },

    async rotateWebhookSecret(request, handler) {
      const { webhookId, revokeOldSecrets } = request;
      const scope = callerScope(handler);
      if (!(await rotateWebhookSecret(db, secrets, scope, webhookId, revokeOldSecrets))) {
        throw noWebhook(webhookId);
      }
      return secretsMessage(await readWebhookSecrets(db, secrets, scope, webhookId), webhookId);
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

/** @throws DomainError INVALID_ARGUMENT if no webhook can have the URL */
function checkedAddress(targets: TargetRules, url: string): { url: string; targetUrl: string } {
  // URL parsing drops some of these, but the URL is stored as given.
  if (/\p{Cc}/u.test(url) || !url.isWellFormed()) {
    throw invalidFields([{ field: "url", description: "must not hold control characters" }]);
  }
  return { url, targetUrl: targets.normalise(url) };
}

/** Null for an empty name. @throws DomainError INVALID_ARGUMENT */
function checkedName(name: string): string | null {
  assertText("name", name, MAX_NAME_CHARACTERS);
  const invisible = invisibleCharacter(name);
  if (invisible) {
    throw invalidFields([{ field: "name", description: `must not hold ${invisible}, which cannot be seen` }]);
  }
  return name.trim() || null;
}

/** The body of a test event. @throws DomainError INVALID_ARGUMENT unless it is a JSON object of an allowed size */
function checkedPayload(payload: string): string {
  const refuse = (description: string) => invalidFields([{ field: "payload", description }]);
  const bytes = Buffer.byteLength(payload);
  if (bytes > MAX_TEST_PAYLOAD_BYTES) {
    throw refuse(`is ${bytes} bytes, more than the ${MAX_TEST_PAYLOAD_BYTES} allowed`);
  }
  let value: unknown;
  try {
    value = JSON.parse(payload);
  } catch (error) {
    throw refuse(`is not valid JSON: ${(error as Error).message}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw refuse('must be a JSON object, such as {"OrderId": 1}');
  }
  if (!payload.isWellFormed()) throw refuse("must be valid Unicode text");
  return payload;
}

/** @throws DomainError INVALID_ARGUMENT */
function checkedRateLimit(rateLimit: number): number {
  if (rateLimit >= 1 && rateLimit <= MAX_RATE_LIMIT) return rateLimit;
  throw invalidFields([
    { field: "rate_limit", description: `must be 1 to ${MAX_RATE_LIMIT} deliveries a second, or unset` },
  ]);
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
