import { isDeepStrictEqual } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import type { RequestSettings } from "../../../gen/webhook/v1/request_settings_pb.ts";
import type {
  EventTypeSchema,
  GetWebhookSecretResponseSchema,
  RotateWebhookSecretResponseSchema,
  WebhookService,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { type AuditAction, auditedCall } from "../../audit/index.ts";
import { stateNotFit } from "../../calls/errors/index.ts";
import {
  BY_ID,
  type Condition,
  callerOf,
  callerScope,
  instanceIn,
  noWebhook,
  ownedIn,
  reachesWebhook,
  readPage,
  type Scope,
  slices,
  webhookIn,
} from "../../calls/index.ts";
import { eventTypes } from "../../contract/catalogue.ts";
import { present, timestampOf } from "../../contract/present.ts";
import { withPartitions } from "../../schema/index.ts";
import { lockShared, readShared } from "../shared-webhooks.ts";
import { eachOf, secretFacts, webhookEntries, webhookFacts, webhookTarget } from "../webhook-changes.ts";
import { deleteWebhook } from "../webhook-deletion.ts";
import { readWebhookSecrets, rotateWebhookSecret, type WebhookSecret } from "../webhook-secrets.ts";
import { updateWebhook, type WebhookChanges } from "../webhook-update.ts";
import {
  createWebhook,
  getWebhook,
  idsOf,
  listWebhooks,
  requiredWebhook,
  type WebhookRow,
} from "../webhooks.ts";
import { briefEventType, describeEventType, sampleOf } from "./event-types.ts";
import { checkedFilter, filterMethods } from "./filters.ts";
import { keyPairMethods } from "./key-pairs.ts";
import {
  assertOwnHeaders,
  keepCredentialsOnHost,
  replaceSettings,
  requestSettingsMethods,
} from "./request-settings.ts";
import { searchMethods } from "./search.ts";
import type { WebhookServiceParts } from "./service-parts.ts";
import { healthNames, webhookMessage } from "./webhook-message.ts";
import {
  assertMaySubscribe,
  checkedAddress,
  checkedBreaker,
  checkedNumber,
  checkedPayload,
  checkedProcesses,
  checkedSecret,
  checkedSettings,
} from "./webhook-values.ts";

/** Manages webhooks (contract, section 4). */
export function webhookService(context: WebhookServiceParts): ServiceImpl<typeof WebhookService> {
  const { db, secrets, targets, limits, filters, deliveryTimeoutMs, onQueued = () => {} } = context;
  const { warningsOf = async () => [] } = context;
  const { onDeleted, readOverdueRetries, queueTestEvent } = context;

  /** The webhooks that a key lists and deletes: those of its instance, as the contract says, or with APP_ISOLATION of its app. */
  function ownInstance(scope: Scope): Condition {
    if (scope === "everything") return instanceIn(null, "w");
    return context.isolatesApps ? ownedIn(scope, "w") : instanceIn(scope.customer, "w");
  }

  /**
   * Changes a webhook of the caller's scope, and records what changed, if anything did.
   *
   * @throws DomainError NOT_FOUND if there is none with this id
   */
  async function change(
    handler: HandlerContext,
    webhookId: bigint,
    changes: WebhookChanges,
    { revision, settings }: { revision?: bigint; settings?: RequestSettings } = {},
  ) {
    const scope = callerScope(handler);
    // Looked up while the database works.
    const { address } = changes;
    const ofHost = address ? warningsOf(address.targetUrl, address.customer ?? null) : [];
    const options = { isShared: settings !== undefined, ...present({ revision }) };
    const { webhook: changed, warnings } = await auditedCall(db, handler, async (trx, record) => {
      const updated = await updateWebhook(trx, scope, webhookId, changes, options);
      if (!updated) throw noWebhook(webhookId);
      if (address && !settings) await keepCredentialsOnHost(trx, secrets, updated);
      const { changed: replaced, warnings = [] } = settings
        ? await replaceSettings(trx, secrets, targets, updated, settings)
        : {};
      if (!settings) await assertOwnHeaders(trx, secrets, updated);
      for (const { before, webhook } of [updated, ...updated.others]) {
        const was = { ...webhookFacts(before), ...replaced?.before };
        const is = { ...webhookFacts(webhook), ...replaced?.after };
        if (isDeepStrictEqual(was, is)) continue;
        await record({ action: actionOf(changes), target: webhookTarget(webhook), before: was, after: is });
      }
      // Settings have raised the revision once more.
      const webhook = (replaced && (await getWebhook(trx, scope, webhookId))) ?? updated.webhook;
      return { webhook, warnings };
    });
    // Its pending deliveries can be sent now.
    if (changes.paused === false || changes.breaker === null || changes.address) onQueued();
    return { webhook: webhookMessage(changed, scope), warnings: [...(await ofHost), ...warnings] };
  }

  /** The customer whose rules for URLs a webhook has. Null if there is no such webhook, which its change reports. */
  async function customerOf(handler: HandlerContext, webhookId: bigint): Promise<string | null> {
    const scope = callerScope(handler);
    if (scope !== "everything") return scope.customer;
    return (await getWebhook(db, scope, webhookId))?.customer ?? null;
  }

  return {
    ...keyPairMethods(context),
    ...requestSettingsMethods(context),
    ...filterMethods(context),
    ...searchMethods(context),

    async listWebhooks(request, handler) {
      const { customer, health, allCustomers } = request;
      const scope = callerScope(handler, customer);
      const isNarrowed = scope === "everything" ? allCustomers : customer !== undefined || health.length > 0;
      const which = isNarrowed ? webhookIn(scope, "w") : ownInstance(scope);
      const { rows, nextPageToken } = await readPage(request, BY_ID, (page) =>
        listWebhooks(db, page, which, healthNames(health)),
      );
      return { webhooks: rows.map((webhook) => webhookMessage(webhook, scope)), nextPageToken };
    },

    async getWebhook(request, handler) {
      const scope = callerScope(handler);
      const webhook = await requiredWebhook(db, scope, request.webhookId);
      const overdue = await readOverdueRetries(db, request.webhookId);
      return {
        webhook: webhookMessage(webhook, scope),
        ...(overdue && { overdueRetries: { ...overdue, oldestDue: timestampFromDate(overdue.oldestDue) } }),
      };
    },

    async createWebhook(request, handler) {
      const { process, url } = request;
      const secret = request.secret === undefined ? undefined : checkedSecret(request.secret);
      await checkedProcesses("process", [process]);
      const caller = callerOf(handler);
      assertMaySubscribe(caller, process);
      const address = checkedAddress(targets, url, caller.customer);
      const ofHost = warningsOf(address.targetUrl, caller.customer);
      const registration = { process, ...address, apiKeyId: caller.id, secret };
      const made = await auditedCall(db, handler, async (trx, record) => {
        const result = await createWebhook(trx, secrets, registration, limits.maxWebhooks);
        if (result.created)
          await record(...webhookEntries("webhook_created", [result.webhook], secretFacts(secret)));
        return result;
      });
      const scope = callerScope(handler);
      return {
        webhook: webhookMessage(made.webhook, scope),
        created: made.created,
        warnings: [
          ...(made.webhook.apiKeyId === caller.id ? [] : [ownedByAnother(made.webhook, scope)]),
          ...(await ofHost),
          ...(made.created || secret === undefined ? [] : [SECRET_NOT_STORED]),
        ],
      };
    },

    async deleteWebhook(request, handler) {
      const scope = callerScope(handler);
      const which = scope === "everything" ? undefined : ownInstance(scope);
      const deleted = await auditedCall(db, handler, async (trx, record) => {
        const webhook = await deleteWebhook(trx, request.webhookId, onDeleted, which);
        if (!webhook) throw noWebhook(request.webhookId);
        await record(...webhookEntries("webhook_deleted", [webhook]));
        return webhook;
      });
      return { webhook: webhookMessage(deleted, scope) };
    },

    async listProcesses({ brief, processes: wanted }, handler) {
      const numbers = await checkedProcesses("processes", wanted);
      const entries = eventTypes().filter(({ number }) => numbers.length === 0 || numbers.includes(number));
      // Of thousands of event types, the first description takes seconds.
      const nextSlice = slices(callerOf(handler).id);
      const processes: MessageInitShape<typeof EventTypeSchema>[] = [];
      for (const entry of entries) {
        processes.push(brief ? briefEventType(entry) : describeEventType(entry));
        await nextSlice();
      }
      return { processes };
    },

    async updateWebhook(request, handler) {
      const { webhookId, revision, url, paused, circuitBreaker, filter } = request;
      const { requestSettings: settings } = request;
      const changes: WebhookChanges = {
        ...checkedSettings(request, deliveryTimeoutMs),
        ...(url === undefined
          ? {}
          : { address: checkedAddress(targets, url, await customerOf(handler, webhookId)) }),
        ...(paused === undefined ? {} : { paused }),
        ...(circuitBreaker === undefined ? {} : { breaker: checkedBreaker(circuitBreaker) }),
      };
      if (filter !== undefined) {
        const { process } = await requiredWebhook(db, callerScope(handler), webhookId);
        changes.filter = await checkedFilter(filters, callerOf(handler).id, process, filter);
      }
      return change(handler, webhookId, changes, present({ revision, settings }));
    },

    setWebhookRateLimit: ({ webhookId, rateLimit: asked }, handler) => {
      const rateLimit =
        asked === undefined ? null : checkedNumber("rateLimit", asked, deliveryTimeoutMs, "unset");
      return change(handler, webhookId, { rateLimit });
    },

    pauseWebhook: ({ webhookId }, handler) => change(handler, webhookId, { paused: true }),

    resumeWebhook: ({ webhookId }, handler) => change(handler, webhookId, { paused: false }),

    async sendTestEvent({ webhookId, process: chosen, payload }, handler) {
      const scope = callerScope(handler);
      const webhook = await requiredWebhook(db, scope, webhookId);
      const process = chosen || webhook.process;
      if (chosen) await checkedProcesses("process", [chosen]);
      const caller = callerOf(handler);
      if (process !== webhook.process) assertMaySubscribe(caller, process);
      const sample = sampleOf(process);
      if (sample === undefined) {
        throw stateNotFit(
          `webhook ${webhookId} is for event type ${process}, which this version does not know`,
        );
      }
      const event = {
        apiKeyId: caller.id,
        webhookId,
        process,
        payload: payload === undefined ? sample : checkedPayload(payload),
      };
      const queued = await withPartitions(db, () =>
        auditedCall(db, handler, async (trx, record) => {
          const made = await queueTestEvent(trx, scope, event);
          const target = webhookTarget(webhook);
          const after = made && { event_id: made.eventId, delivery_id: made.deliveryId };
          if (after) await record({ action: "test_event_sent", target, after });
          return made;
        }),
      );
      if (!queued) throw noWebhook(webhookId);
      onQueued();
      return queued;
    },

    async getWebhookSecret(request, handler) {
      const { webhookId } = request;
      const scope = callerScope(handler);
      return auditedCall(db, handler, async (trx, record) => {
        // The secret also signs deliveries of the endpoint's other event types.
        const [webhook] = await readShared(trx, scope, webhookId);
        const found = webhook ? await readWebhookSecrets(trx, secrets, webhookId) : null;
        if (webhook && found) await record({ action: "webhook_secret_read", target: webhookTarget(webhook) });
        return secretsMessage(found, webhookId);
      });
    },

    async rotateWebhookSecret(request, handler) {
      const { webhookId, revokeOldSecrets } = request;
      const secret = request.secret === undefined ? undefined : checkedSecret(request.secret);
      const scope = callerScope(handler);
      return auditedCall(db, handler, async (trx, record) => {
        const shared = await lockShared(trx, scope, webhookId);
        if (shared.length === 0) throw noWebhook(webhookId);
        await rotateWebhookSecret(trx, secrets, idsOf(shared), revokeOldSecrets, secret);
        const after = { old_secrets_revoked: revokeOldSecrets, ...secretFacts(secret) };
        await record(...eachOf(shared, { action: "webhook_secret_rotated", after }));
        return secretsMessage(await readWebhookSecrets(trx, secrets, webhookId), webhookId);
      });
    },
  };
}

/** The note about a webhook that already existed, to a caller that gave a signing secret. */
const SECRET_NOT_STORED =
  "the webhook existed, and its signing secret is unchanged: the given one was not stored; RotateWebhookSecret replaces it";

/** All valid secrets, newest first, and the newest one separately. */
function secretsMessage(
  found: WebhookSecret[] | null,
  webhookId: bigint,
): MessageInitShape<typeof GetWebhookSecretResponseSchema> &
  MessageInitShape<typeof RotateWebhookSecretResponseSchema> {
  if (!found) throw noWebhook(webhookId);
  const told = found.map(({ secret, expires }) => ({
    secret: `whsec_${secret.toString("base64")}`,
    ...present({ expires: timestampOf(expires) }),
  }));
  return { secret: told[0]?.secret ?? "", secrets: told };
}

/** The action of a change in the audit log. */
function actionOf({ paused, ...others }: WebhookChanges): AuditAction {
  if (paused === undefined || Object.keys(others).length > 0) return "webhook_updated";
  return paused ? "webhook_paused" : "webhook_resumed";
}

/** The note about a webhook that already existed. Its owner is hidden from other apps. */
function ownedByAnother(webhook: WebhookRow, scope: Scope): string {
  const found = `webhook ${webhook.id} was registered for this event type and URL before, with another API key; nothing was changed`;
  if (reachesWebhook(scope, webhook)) return found;
  return `${found}, and your key cannot read its signing secret or its deliveries: register another URL for a webhook of your own`;
}
