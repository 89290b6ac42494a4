import { CircuitBreakerState, type Webhook } from "../../../../../gen/webhook/v1/webhook_pb.ts";
import { processName } from "../../../../../src/contract/catalogue.ts";
import { WEBHOOK_HEALTHS } from "../../../parts/status/webhook-health.tsx";
import type { LastDay } from "./last-day.ts";

/** The filters and the order of the list, by their names in the page's URL. */
export const FILTER_NAMES = [
  "search",
  "process",
  "health",
  "state",
  "application",
  "sort",
  "period",
  "page",
  "new",
] as const;

/** Each filter's text, "" where the address has none. */
export type WebhookFilters = Record<(typeof FILTER_NAMES)[number], string>;

/** The value of `application` for webhooks without an installed app. */
export const NO_APPLICATION = "none";

/** The webhooks that pass the filters, in the order asked for; newest first unless told. */
export function findWebhooks(
  webhooks: readonly Webhook[],
  filters: WebhookFilters,
  stats: LastDay["stats"],
): Webhook[] {
  const words = filters.search.toLowerCase().split(/\s+/).filter(Boolean);
  const wanted = WEBHOOK_HEALTHS.find(({ name }) => name === filters.health);
  const found = webhooks.filter(
    (webhook) =>
      (!wanted || webhook.health === wanted.health) &&
      (!filters.process || processName(webhook.webhookProcess) === filters.process) &&
      (!filters.state || stateOf(webhook) === filters.state) &&
      (!filters.application || (webhook.application ?? NO_APPLICATION) === filters.application) &&
      matches(webhook, words),
  );
  if (filters.sort === "oldest") return found.sort((a, b) => compare(a.id, b.id));
  if (filters.sort === "health") {
    // The numbers of the proto rise from healthy to failing.
    return found.sort((a, b) => b.health - a.health || compare(b.id, a.id));
  }
  if (filters.sort === "failures") {
    const failed = ({ id }: Webhook) => stats?.get(id)?.failedAttempts ?? 0n;
    return found.sort((a, b) => compare(failed(b), failed(a)) || compare(b.id, a.id));
  }
  return found.sort((a, b) => compare(b.id, a.id));
}

/** By the values of the filter. */
function stateOf({ paused, circuitBreaker }: Webhook): string {
  if (paused) return "paused";
  if (circuitBreaker?.state === CircuitBreakerState.OPEN) return "open";
  return circuitBreaker?.state === CircuitBreakerState.DISABLED ? "disabled" : "active";
}

/** The other event types of each webhook's endpoint; nothing for a webhook without any. */
export function otherTypes(webhooks: readonly Webhook[]): ReadonlyMap<bigint, readonly Webhook[]> {
  const others = new Map<bigint, readonly Webhook[]>();
  const shared = webhooks.filter(({ endpointId }) => endpointId !== undefined);
  for (const some of Map.groupBy(shared, ({ endpointId }) => endpointId).values()) {
    if (some.length === 1) continue;
    for (const webhook of some)
      others.set(
        webhook.id,
        some.filter((each) => each !== webhook),
      );
  }
  return others;
}

/**
 * Whether a webhook has every word somewhere: in its name, its address, its event type, its application, or as its id or that of
 * its endpoint.
 */
function matches(webhook: Webhook, words: readonly string[]): boolean {
  if (words.length === 0) return true;
  const { name = "", url, applicationName = "" } = webhook;
  const text = [name, url, processName(webhook.webhookProcess), applicationName].join(" ").toLowerCase();
  const ids = [String(webhook.id), webhook.endpointId];
  return words.every((word) => text.includes(word) || ids.includes(word));
}

function compare(a: bigint, b: bigint): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
