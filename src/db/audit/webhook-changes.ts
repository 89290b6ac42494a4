import { processName } from "../../contract/catalogue.ts";
import type { WebhookRow } from "../webhooks/webhooks.ts";
import { type AuditRecord, webhookFacts, webhookTarget } from "./audit-log.ts";

/** The entries about one change of several webhooks, such as those of an endpoint. */
export function eachOf(
  webhooks: readonly Parameters<typeof webhookTarget>[0][],
  change: Omit<AuditRecord, "target">,
): AuditRecord[] {
  return webhooks.map((webhook) => ({ ...change, target: webhookTarget(webhook) }));
}

/** The entries about webhooks that were created or deleted. */
export function webhookEntries(
  action: "webhook_created" | "webhook_deleted",
  webhooks: readonly WebhookRow[],
): AuditRecord[] {
  return webhooks.map((webhook) => ({
    action,
    target: webhookTarget(webhook),
    [action === "webhook_created" ? "after" : "before"]: webhookFacts(webhook),
  }));
}

/**
 * The entry about an endpoint.
 *
 * @param before its webhooks before the change; none if it was made
 * @param after its webhooks after the change; none if it was deleted
 */
export function endpointEntry(
  action: Extract<AuditRecord["action"], `endpoint_${string}`>,
  id: string,
  before: readonly WebhookRow[],
  after: readonly WebhookRow[],
): AuditRecord {
  const all = [...before, ...after];
  const [first] = all;
  if (!first) throw new Error(`endpoint ${id} had and has no webhook`);
  const isOne = all.every(({ process }) => process === first.process);
  const target = { ...webhookTarget({ ...first, process: isOne ? first.process : 0 }), id };
  const facts = (webhooks: readonly WebhookRow[]) => ({
    ...(webhooks.length === 0 ? {} : { webhook_processes: namesOf(webhooks) }),
  });
  return { action, target, before: facts(before), after: facts(after) };
}

const namesOf = (webhooks: readonly WebhookRow[]) =>
  webhooks
    .map(({ process }) => process)
    .sort((a, b) => a - b)
    .map(processName);
