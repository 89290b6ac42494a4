import type { AuditRecord, AuditTarget, Facts } from "../audit/index.ts";
import type { ApiKeyRow, Owned } from "../calls/index.ts";
import { processName } from "../contract/catalogue.ts";
import { permissionName } from "../contract/permissions.ts";
import { present } from "../contract/present.ts";
import type { Quotas } from "./api-keys.ts";
import type { InstalledAppRow } from "./installed-apps.ts";

/** An API key as the target of a change. */
export function keyTarget(key: Owned & { id: string; name: string }): AuditTarget {
  return { id: key.id, name: key.name, customer: key.customer, appId: key.installedAppId, process: null };
}

/** An installed app as the target of a change. */
export function appTarget({ id, name }: InstalledAppRow): AuditTarget {
  return { id, name, customer: null, appId: id, process: null };
}

/** The values of a key that entries contain. */
export function keyFacts(key: ApiKeyRow): Facts {
  return {
    name: key.name,
    prefix: key.prefix,
    permissions: key.permissions.map(permissionName),
    allowed_processes: key.allowedProcesses.map(processName),
    installed_application_id: key.installedAppId,
    ...present({ customer: key.customer }),
    ...quotaFacts(key),
  };
}

/** The quotas of a key that entries contain. Nothing for a key without any. */
function quotaFacts({ webhookQuota, eventsPerSecond }: Quotas): Facts {
  return present({ webhook_quota: webhookQuota, events_per_second: eventsPerSecond });
}

/** The entry about changed quotas of a key. */
export function quotasChanged(before: ApiKeyRow, key: ApiKeyRow): AuditRecord {
  return {
    action: "api_key_quotas_changed",
    target: keyTarget(key),
    before: quotaFacts(before),
    after: quotaFacts(key),
  };
}

/** The entry about a renamed key. */
export function keyRenamed(before: ApiKeyRow, key: ApiKeyRow): AuditRecord {
  return {
    action: "api_key_renamed",
    target: keyTarget(key),
    before: { name: before.name },
    after: { name: key.name },
  };
}

/** The entry about a new key. */
export function keyCreated(key: ApiKeyRow): AuditRecord {
  return { action: "api_key_created", target: keyTarget(key), after: keyFacts(key) };
}

/** The entry about the key of ADMIN_KEY, which has every permission again. */
export function keyRestored(before: ApiKeyRow, key: ApiKeyRow): AuditRecord {
  const facts = (row: ApiKeyRow) => ({ ...keyFacts(row), revoked: row.revoked !== null });
  return {
    action: "api_key_restored",
    target: keyTarget(key),
    before: facts(before),
    after: facts(key),
  };
}

/** The entry about a rotated key: the prefixes identify the secrets. */
export function keyRotated(
  oldPrefix: string,
  key: ApiKeyRow & { oldSecretsExpire: Date | null },
): AuditRecord {
  return {
    action: "api_key_rotated",
    target: keyTarget(key),
    before: { prefix: oldPrefix },
    after: { prefix: key.prefix, old_secrets_expire: key.oldSecretsExpire?.toISOString() ?? null },
  };
}
