import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ApiKeySchema, InstalledAppSchema } from "../../../gen/webhook/v1/api_key_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import type { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import type { ApiKeyRow } from "../../calls/index.ts";
import type { ListedApiKey } from "../api-keys.ts";
import type { InstalledAppRow } from "../installed-apps.ts";

export function apiKeyMessage(row: ApiKeyRow & Partial<ListedApiKey>): MessageInitShape<typeof ApiKeySchema> {
  return {
    id: row.id,
    name: row.name,
    prefix: row.prefix,
    permissions: row.permissions as Permission[],
    allowedProcesses: row.allowedProcesses as WebhookProcess[],
    ...(row.installedAppId === null ? {} : { installedApplicationId: row.installedAppId }),
    created: timestampFromDate(row.created),
    ...(row.revoked === null ? {} : { revoked: timestampFromDate(row.revoked) }),
    ...(row.lastUsed === null ? {} : { lastUsed: timestampFromDate(row.lastUsed) }),
    ...(row.oldSecretsExpire ? { oldSecretsExpire: timestampFromDate(row.oldSecretsExpire) } : {}),
    ...(row.webhookQuota === null && row.eventsPerSecond === null
      ? {}
      : { quotas: { webhooks: row.webhookQuota ?? 0, eventsPerSecond: row.eventsPerSecond ?? 0 } }),
  };
}

export function installedAppMessage(row: InstalledAppRow): MessageInitShape<typeof InstalledAppSchema> {
  return { id: row.id, name: row.name, created: timestampFromDate(row.created) };
}
