import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CustomerCountsSchema, CustomerSchema } from "../../../gen/webhook/v1/customer_pb.ts";
import { present, timestampOf } from "../../contract/present.ts";
import type { CustomerRow } from "../customers.ts";

/** What a customer has now. */
export type Counts = MessageInitShape<typeof CustomerCountsSchema>;

/** @param isOperator whether the metadata is shown */
export function customerMessage(
  row: CustomerRow,
  counts: Counts | undefined,
  isOperator: boolean,
): MessageInitShape<typeof CustomerSchema> {
  const { webhookQuota, eventsPerSecond, pendingQuota } = row;
  const quotas = {
    webhooks: webhookQuota ?? 0,
    eventsPerSecond: eventsPerSecond ?? 0,
    pendingDeliveries: pendingQuota ?? 0,
  };
  const erasure = row.erasureStarted && {
    ...present({ started: timestampOf(row.erasureStarted), finished: timestampOf(row.erasureFinished) }),
    webhooks: row.erasedWebhooks,
    apiKeys: row.erasedKeys,
    payloads: row.erasedPayloads,
    deliveries: row.erasedDeliveries,
  };
  return present({
    userId: row.id,
    displayName: row.displayName ?? "",
    metadata: isOperator ? row.metadata : {},
    quotas: Object.values(quotas).some((quota) => quota > 0) ? quotas : null,
    created: timestampOf(row.created),
    paused: timestampOf(row.paused),
    counts,
    erasure,
  });
}
