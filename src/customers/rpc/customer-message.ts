import type { MessageInitShape } from "@bufbuild/protobuf";
import type { CustomerCountsSchema, CustomerSchema } from "../../../gen/webhook/v1/customer_pb.ts";
import { present, timestampOf } from "../../contract/present.ts";
import type { CustomerRow } from "../customers.ts";

/** The current counts of a customer. */
export type Counts = MessageInitShape<typeof CustomerCountsSchema>;

/** @param isOperator whether the metadata is shown, and what was erased of events: deliveries and notices of the operator's webhooks are counted, too */
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
    payloads: isOperator ? row.erasedPayloads : 0n,
    deliveries: isOperator ? row.erasedDeliveries : 0n,
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
