import type { AuditRecord, AuditTarget, Facts } from "../audit/index.ts";
import type { Owned } from "../calls/index.ts";
import { processName } from "../contract/catalogue.ts";
import { present } from "../contract/present.ts";
import { SETTING_NAMES, SETTINGS } from "../contract/webhooks/settings.ts";
import type { Breaker } from "./breakers.ts";
import type { WebhookRow } from "./webhooks.ts";

/** A webhook as the target of a change. */
export function webhookTarget(webhook: Owned & { id: bigint; url: string; process: number }): AuditTarget {
  const { id, url, customer, installedAppId, process } = webhook;
  return { id: String(id), name: url, customer, appId: installedAppId, process };
}

/** A webhook in a log line. */
export const inLog = ({ webhookId, targetUrl }: { webhookId: bigint; targetUrl: string }) => ({
  webhookId: String(webhookId),
  host: new URL(targetUrl).host,
});

/** The values of a webhook that entries contain. */
export function webhookFacts(webhook: Omit<WebhookRow, "id" | "created" | "modified">): Facts {
  return {
    ...Object.fromEntries(SETTING_NAMES.map((name) => [SETTINGS[name].column, webhook[name]])),
    url: webhook.url,
    webhook_process: processName(webhook.process),
    api_key_id: webhook.apiKeyId,
    paused: webhook.paused?.toISOString() ?? null,
    ...present({ filter: webhook.filter, filter_stopped: webhook.filterStopped?.toISOString() }),
    ...present({ endpoint_id: webhook.endpointId }),
    ...breakerFacts(webhook.breaker),
  };
}

function breakerFacts(breaker: Breaker | null): Facts {
  if (breaker === null) return {};
  const { settings, state } = breaker;
  return {
    circuit_breaker: Object.entries(settings).map(([name, value]) => `${name} ${value}`),
    ...(state === "closed" ? {} : { circuit_breaker_state: state }),
  };
}

/** The entries about one change of several webhooks, such as those of an endpoint. */
export function eachOf(
  webhooks: readonly Parameters<typeof webhookTarget>[0][],
  change: Omit<AuditRecord, "target">,
): AuditRecord[] {
  return webhooks.map((webhook) => ({ ...change, target: webhookTarget(webhook) }));
}

/** The fact that a caller has given the signing secret. @param secret undefined if the service has generated it */
export const secretFacts = (secret: unknown): Facts => (secret === undefined ? {} : { own_secret: true });

/** The entries about webhooks that were created or deleted. @param more facts about each */
export function webhookEntries(
  action: "webhook_created" | "webhook_deleted",
  webhooks: readonly WebhookRow[],
  more: Facts = {},
): AuditRecord[] {
  return webhooks.map((webhook) => ({
    action,
    target: webhookTarget(webhook),
    [action === "webhook_created" ? "after" : "before"]: { ...webhookFacts(webhook), ...more },
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
