import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ApiKeySchema, InstalledAppSchema } from "../../../gen/webhook/v1/api_key_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import type { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import type { ApiKeyRow } from "../../calls/index.ts";
import { processName } from "../../contract/catalogue.ts";
import { present, timestampOf } from "../../contract/present.ts";
import type { ListedApiKey } from "../api-keys.ts";
import type { InstalledAppRow } from "../installed-apps.ts";

export function apiKeyMessage(row: ApiKeyRow & Partial<ListedApiKey>): MessageInitShape<typeof ApiKeySchema> {
  const hasQuota = row.webhookQuota !== null || row.eventsPerSecond !== null;
  return present({
    id: row.id,
    name: row.name,
    prefix: row.prefix,
    permissions: row.permissions as Permission[],
    allowedProcesses: row.allowedProcesses as WebhookProcess[],
    allowedProcessNames: row.allowedProcesses.map(processName),
    installedApplicationId: row.installedAppId,
    customer: row.customer,
    created: timestampFromDate(row.created),
    revoked: timestampOf(row.revoked),
    lastUsed: timestampOf(row.lastUsed),
    oldSecretsExpire: timestampOf(row.oldSecretsExpire),
    quotas: hasQuota ? { webhooks: row.webhookQuota ?? 0, eventsPerSecond: row.eventsPerSecond ?? 0 } : null,
  });
}

export function installedAppMessage(row: InstalledAppRow): MessageInitShape<typeof InstalledAppSchema> {
  return { id: row.id, name: row.name, created: timestampFromDate(row.created) };
}
