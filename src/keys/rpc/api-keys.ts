import type { Duration } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import type { ApiKeyQuotas, ApiKeyService, RevokeApiKeyRequest } from "../../../gen/webhook/v1/api_key_pb.ts";
import { Permission, PermissionSchema } from "../../../gen/webhook/v1/options_pb.ts";
import { auditedCall } from "../../audit/index.ts";
import { invalidField, invalidFields } from "../../calls/errors/index.ts";
import {
  assertServiceWide,
  assertText,
  BY_CREATED,
  callerOf,
  callerScope,
  isUuid,
  readPage,
  type Scope,
  unknownProcess,
} from "../../calls/index.ts";
import type { LimitsConfig } from "../../config/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { invisibleCharacter, isBlank } from "../../contract/invisible-characters.ts";
import { enumChoices } from "../../contract/json/names.ts";
import { isPermission, permissionName } from "../../contract/permissions.ts";
import { isKnownProcess } from "../../event-types/index.ts";
import type { Db } from "../../lib/pg/index.ts";
import { createBoundedApiKey, listApiKeys, type Quotas, renameApiKey } from "../api-keys.ts";
import { createBoundedInstalledApp, listInstalledApps, removeInstalledApp } from "../installed-apps.ts";
import {
  appTarget,
  keyCreated,
  keyFacts,
  keyRenamed,
  keyRotated,
  keyTarget,
  quotasChanged,
} from "../key-changes.ts";
import { removeApiKey } from "../key-removal.ts";
import { rotateApiKey } from "../key-rotation.ts";
import { assertNoMoreRights } from "../more-rights.ts";
import { setQuotas } from "../quotas.ts";
import type { RevokeKey, WebhooksFate } from "../revoke-key.ts";
import { apiKeyMessage, installedAppMessage } from "./key-messages.ts";

/** The maximum length of a name, in characters. */
const MAX_NAME_CHARACTERS = 100;
/** The maximum grace period of a rotation, in milliseconds. */
const MAX_GRACE_MS = 7 * 24 * 3_600_000;
/** The maximum quota of webhooks. */
const MAX_WEBHOOK_QUOTA = 1_000_000;
/** The maximum quota of events per second. */
const MAX_EVENTS_PER_SECOND = 100_000;

/** Manages API keys and installed apps (contract, section 5). */
export function apiKeyService({
  db,
  limits,
  revokeKey,
}: {
  db: Db;
  limits: Pick<LimitsConfig, "maxApiKeys" | "maxInstalledApps">;
  revokeKey: RevokeKey;
}): ServiceImpl<typeof ApiKeyService> {
  return {
    async createApiKey(request, handler) {
      const { name } = request;
      assertName(name);
      const permissions = [...new Set(request.permissions)];
      if (permissions.length === 0 || !permissions.every(isPermission)) {
        throw invalidField(
          "permissions",
          `must be one or more of: ${enumChoices(PermissionSchema).join(", ")}`,
        );
      }
      const allowedProcesses = [...new Set(request.allowedProcesses)];
      for (const process of allowedProcesses) {
        if (await isKnownProcess(process)) continue;
        throw invalidField("allowed_processes", `names ${unknownProcess(process)}`);
      }
      const installedAppId = request.installedApplicationId?.toLowerCase() ?? null;
      const scope = callerScope(handler);
      // A key of an app or a customer is refused every other one.
      if (request.customer !== undefined) callerScope(handler, request.customer);
      const customer = scope === "everything" ? (request.customer ?? null) : scope.customer;
      assertOwnApp(scope, installedAppId);
      const forOperator = permissions.find((each) => FOR_OPERATOR.includes(each));
      if (forOperator && customer !== null) throw notForOthers(forOperator, "customers", "customer");
      if (forOperator && installedAppId !== null)
        throw notForOthers(forOperator, "installed apps", "installed_application_id");
      assertNoMoreRights(scope, { permissions, allowedProcesses }, "the new API key");
      if (installedAppId !== null && !isUuid(installedAppId)) throw noSuchApp();
      const asked = quotasOf(request.quotas);
      if (request.quotas) assertSetsQuotas(scope);
      const quotas = scope === "everything" ? asked : callerOf(handler);
      const key = { name, permissions, allowedProcesses, customer, installedAppId, quotas };
      const made = await auditedCall(db, handler, async (trx, record) => {
        const result = await createBoundedApiKey(trx, key, limits.maxApiKeys);
        if (result) await record(keyCreated(result.key));
        return result;
      });
      if (!made) throw noSuchApp();
      return { apiKey: apiKeyMessage(made.key), secret: made.secret };
    },

    async listApiKeys(request, handler) {
      const scope = callerScope(handler, request.customer);
      const { rows, nextPageToken } = await readPage(request, BY_CREATED, (page) =>
        listApiKeys(db, scope, page),
      );
      return { apiKeys: rows.map(apiKeyMessage), nextPageToken };
    },

    async renameApiKey(request, handler) {
      assertKeyId("api_key_id", request.apiKeyId);
      assertName(request.name);
      const key = await auditedCall(db, handler, async (trx, record) => {
        const scope = callerScope(handler);
        const renamed = await renameApiKey(trx, scope, request.apiKeyId.toLowerCase(), request.name);
        if (renamed.before.name !== request.name) await record(keyRenamed(renamed.before, renamed.key));
        return renamed.key;
      });
      return { apiKey: apiKeyMessage(key) };
    },

    async setApiKeyQuotas(request, handler) {
      assertSetsQuotas(callerScope(handler));
      assertKeyId("api_key_id", request.apiKeyId);
      const quotas = quotasOf(request.quotas);
      const key = await auditedCall(db, handler, async (trx, record) => {
        const id = request.apiKeyId.toLowerCase();
        const changed = await setQuotas(trx, callerScope(handler), id, quotas);
        await record(quotasChanged(changed.before, changed.key));
        return changed.key;
      });
      return { apiKey: apiKeyMessage(key) };
    },

    async revokeApiKey(request, handler) {
      assertKeyId("api_key_id", request.apiKeyId);
      const id = request.apiKeyId.toLowerCase();
      const fate = fateOf(request);
      const done = await auditedCall(db, handler, async (trx, record) => {
        const result = await revokeKey(trx, callerScope(handler), id, fate);
        await record(...result.entries);
        return result;
      });
      return {
        apiKey: apiKeyMessage(done.key),
        webhooksTransferred: done.transferred,
        webhooksDeleted: done.deleted,
      };
    },

    async rotateApiKey(request, handler) {
      assertKeyId("api_key_id", request.apiKeyId);
      const graceMs = graceOf(request.gracePeriod);
      const { key, secret } = await auditedCall(db, handler, async (trx, record) => {
        const rotated = await rotateApiKey(
          trx,
          callerScope(handler),
          request.apiKeyId.toLowerCase(),
          graceMs,
        );
        await record(keyRotated(rotated.oldPrefix, rotated.key));
        return rotated;
      });
      return { apiKey: apiKeyMessage(key), secret };
    },

    async deleteApiKey(request, handler) {
      assertKeyId("api_key_id", request.apiKeyId);
      const removed = await auditedCall(db, handler, async (trx, record) => {
        const key = await removeApiKey(trx, callerScope(handler), request.apiKeyId.toLowerCase());
        await record({ action: "api_key_deleted", target: keyTarget(key), before: keyFacts(key) });
        return key;
      });
      return { apiKey: apiKeyMessage(removed) };
    },

    async createInstalledApp(request, handler) {
      assertServiceWide(handler);
      assertName(request.name);
      const app = await auditedCall(db, handler, async (trx, record) => {
        const created = await createBoundedInstalledApp(trx, request.name, limits.maxInstalledApps);
        await record({ action: "installed_app_created", target: appTarget(created) });
        return created;
      });
      return { installedApp: installedAppMessage(app) };
    },

    async deleteInstalledApp(request, handler) {
      assertServiceWide(handler);
      const id = request.installedApplicationId.toLowerCase();
      if (!isUuid(id)) {
        throw invalidField("installed_application_id", "must be the id of an installed app, a UUID");
      }
      const app = await auditedCall(db, handler, async (trx, record) => {
        const removed = await removeInstalledApp(trx, id);
        await record({ action: "installed_app_deleted", target: appTarget(removed) });
        return removed;
      });
      return { installedApp: installedAppMessage(app) };
    },

    async listInstalledApps(request, handler) {
      const scope = callerScope(handler);
      const { rows, nextPageToken } = await readPage(request, BY_CREATED, (page) =>
        listInstalledApps(db, scope, page),
      );
      return { installedApps: rows.map(installedAppMessage), nextPageToken };
    },
  };
}

function noSuchApp(): DomainError {
  return invalidField(
    "installed_application_id",
    "is not the id of an installed app; list them or create one",
  );
}

/** Permissions that only keys of the operator without an app can have, and why. */
const REASONS: Partial<Record<Permission, string>> = {
  [Permission.MANAGE_EVENT_TYPES]: "event types belong to all apps",
  [Permission.MANAGE_CUSTOMERS]: "customers are the operator's",
};
const FOR_OPERATOR = Object.keys(REASONS).map(Number);

/** The error for a permission of the operator. @param field makes the key that of an app or a customer */
function notForOthers(permission: Permission, owners: string, field: string): DomainError {
  return invalidFields([
    {
      field: "permissions",
      description: `names ${permissionName(permission)}, which keys of ${owners} cannot have, because ${REASONS[permission]}; leave it out, or leave out ${field}`,
    },
  ]);
}

/** @throws DomainError PERMISSION_DENIED if a key of an app or a customer would create a key of another app or of none */
function assertOwnApp(scope: Scope, installedAppId: string | null): void {
  if (scope === "everything" || installedAppId === scope.installedAppId) return;
  throw new DomainError(
    "NOT_ALLOWED",
    scope.installedAppId === null
      ? "installed_application_id: your key belongs to a customer and to no installed app, and creates such keys only: leave it out"
      : `installed_application_id: your key belongs to the installed app ${scope.installedAppId} and creates keys of this app only: name it, or use a key without an app`,
  );
}

/** @throws DomainError PERMISSION_DENIED for a key of an app or a customer, which could lift its own quotas, or with another key */
function assertSetsQuotas(scope: Scope): void {
  if (scope === "everything") return;
  const [keys, others] = scope.customer === null ? ["installed apps", "an app"] : ["customers", "a customer"];
  throw new DomainError(
    "NOT_ALLOWED",
    `quotas: keys of ${keys} cannot set quotas, and keys that they create get their quotas; leave quotas out, or use a key without ${others}`,
  );
}

function assertName(name: string): void {
  assertText("name", name, MAX_NAME_CHARACTERS);
  if (isBlank(name)) throw invalidField("name", "must hold more than white space");
  const invisible = invisibleCharacter(name);
  if (invisible)
    throw invalidField(
      "name",
      `must not hold ${invisible}: control and formatting characters are not shown; remove it`,
    );
}

/** The quotas of a request; null for those that are unset or 0. */
function quotasOf({ webhooks = 0, eventsPerSecond = 0 }: Partial<ApiKeyQuotas> = {}): Quotas {
  const wrong = (field: string, value: number, most: number) =>
    value >= 0 && value <= most
      ? []
      : [{ field: `quotas.${field}`, description: `must be from 1 to ${most}, or 0 for no quota` }];
  const violations = [
    ...wrong("webhooks", webhooks, MAX_WEBHOOK_QUOTA),
    ...wrong("events_per_second", eventsPerSecond, MAX_EVENTS_PER_SECOND),
  ];
  if (violations.length > 0) throw invalidFields(violations);
  return { webhookQuota: webhooks || null, eventsPerSecond: eventsPerSecond || null };
}

/**
 * The requested fate of the key's webhooks. Required even if it has none, so that no webhook is lost by an omission.
 */
function fateOf(request: RevokeApiKeyRequest): WebhooksFate {
  switch (request.webhooks.case) {
    case "deleteWebhooks":
      return "delete";
    case "transferToKeyId": {
      const transferTo = request.webhooks.value;
      assertKeyId("transfer_to_key_id", transferTo);
      if (transferTo.toLowerCase() === request.apiKeyId.toLowerCase()) {
        throw invalidField("transfer_to_key_id", "must be another key than the revoked one");
      }
      return { transferTo: transferTo.toLowerCase() };
    }
    default:
      throw invalidField("webhooks", "is required: set transfer_to_key_id or delete_webhooks");
  }
}

/** The grace period in milliseconds. */
function graceOf(period: Duration | undefined): number {
  const ms = period === undefined ? 0 : Number(period.seconds) * 1_000 + period.nanos / 1_000_000;
  if (ms >= 0 && ms <= MAX_GRACE_MS) return ms;
  throw invalidField("grace_period", "must be 0 to 7 days, such as 86400s, or unset");
}

function assertKeyId(field: string, id: string): void {
  if (!isUuid(id)) throw invalidField(field, "must be the id of an API key, a UUID");
}
