import { isDeepStrictEqual } from "node:util";
import type { AuditRecord, AuditTarget, Facts } from "../audit/index.ts";
import type { CustomerRow } from "./customers.ts";

/** A customer as the target of a change. */
function customerTarget({ id, displayName }: CustomerRow): AuditTarget {
  return { id, name: displayName, customer: id, appId: null, process: null };
}

/** The values of a customer that entries contain. Its metadata is for the operator only, and its keys see entries. */
const customerFacts = (customer: CustomerRow): Facts => ({
  display_name: customer.displayName,
  webhook_quota: customer.webhookQuota,
  events_per_second: customer.eventsPerSecond,
  pending_quota: customer.pendingQuota,
});

/** The entry about new settings. */
export function customerUpdated(before: CustomerRow, after: CustomerRow): AuditRecord {
  return {
    action: "customer_updated",
    target: customerTarget(after),
    before: customerFacts(before),
    after: {
      ...customerFacts(after),
      ...(isDeepStrictEqual(before.metadata, after.metadata) ? {} : { metadata_changed: true }),
    },
  };
}

/** The entry about a pause, or its end. @param webhooks the number of webhooks that it has paused or resumed */
export function customerPaused(before: CustomerRow, after: CustomerRow, webhooks: number): AuditRecord {
  return {
    action: after.paused ? "customer_paused" : "customer_resumed",
    target: customerTarget(after),
    before: { paused: before.paused?.toISOString() ?? null },
    after: { paused: after.paused?.toISOString() ?? null, webhooks },
  };
}

/** The entry about the start of an erasure. */
export function customerErased(customer: CustomerRow): AuditRecord {
  const started = customer.erasureStarted?.toISOString() ?? null;
  return { action: "customer_erased", target: customerTarget(customer), after: { erasure_started: started } };
}
