import { type AuditRecord, webhookTarget } from "./audit-log.ts";

/** The entries about one change of several webhooks, such as those of an endpoint. */
export function eachOf(
  webhooks: readonly Parameters<typeof webhookTarget>[0][],
  change: Omit<AuditRecord, "target">,
): AuditRecord[] {
  return webhooks.map((webhook) => ({ ...change, target: webhookTarget(webhook) }));
}
