import { type Timestamp, timestampMs } from "@bufbuild/protobuf/wkt";
import {
  CircuitBreakerState,
  type OverdueRetries,
  type Webhook,
  WebhookHealth,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { rateInWords } from "../../../src/contract/webhooks/settings.ts";
import { countOf } from "./text/words.ts";
import { Time, useNow } from "./time.tsx";

/** A retry is overdue when it was due longer ago than this, in milliseconds; the service counts by the same time. */
export const OVERDUE_AFTER_MS = 20_000;
/** The maximum number that the service counts. */
const MAX_COUNTED = 10_000;
const MINUTE_MS = 60_000;

/** The reason why a webhook's retries wait: `waiting for shop.example, which does not answer`. */
export function waitingFor(webhook: Webhook): string {
  if (webhook.paused) return "the webhook is paused";
  if (webhook.circuitBreaker?.state === CircuitBreakerState.OPEN) return "the circuit breaker is open";
  if (webhook.circuitBreaker?.state === CircuitBreakerState.DISABLED) return "the webhook is disabled";
  const host = URL.canParse(webhook.url) ? new URL(webhook.url).host : webhook.url;
  if (webhook.heldUntil) return `${host} wants no requests for now`;
  if (webhook.health === WebhookHealth.FAILING) {
    const answers = webhook.lastError?.startsWith("HTTP status");
    return `waiting for ${host}, which ${answers ? `answers with ${webhook.lastError}` : "does not answer"}`;
  }
  if (webhook.health === WebhookHealth.DEGRADED) return `waiting for ${host}, where some attempts fail`;
  if (webhook.rateLimit !== undefined) {
    return `the rate limit allows ${rateInWords(webhook.rateLimit, webhook)}`;
  }
  return `waiting for ${host}`;
}

/** `698 retries overdue, oldest 16 min`. */
export function overdueInWords({ count, oldestDue }: OverdueRetries, now: number): string {
  const retries = countOf(count, "retry", "retries");
  const oldest = oldestDue ? `, oldest ${overdueFor(now - timestampMs(oldestDue))}` : "";
  return `${retries}${count >= MAX_COUNTED ? " or more" : ""} overdue${oldest}`;
}

/** The delay of a retry, rounded: `45 s`, `16 min`, `2 h 5 min`. */
export function overdueFor(ms: number): string {
  if (ms < MINUTE_MS) return `${Math.max(0, Math.round(ms / 1_000))} s`;
  const minutes = Math.floor(ms / MINUTE_MS);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** `next in 3 min`, or `retry overdue by 16 min`. */
export function NextRetry({ due }: { due: Timestamp }) {
  const late = useLateness(due);
  if (late > OVERDUE_AFTER_MS) return `retry overdue by ${overdueFor(late)}`;
  return (
    <>
      next <Time value={due} relative="short" />
    </>
  );
}

/** The time since a moment in milliseconds, updated every second. */
export function useLateness(due: Timestamp): number {
  return useNow(1_000) - timestampMs(due);
}
