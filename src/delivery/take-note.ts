import { type DeliveryEngine, SLOW_MS } from "./engine.ts";
import type { Outcome } from "./outcome.ts";

/** What an attempt's outcome says of its webhook and of its host, for all flows of the process. It frees their room. */
export function takeNote(engine: DeliveryEngine, webhookId: bigint, host: string, outcome: Outcome): void {
  const { delivered, status, hostFault, receiverMs } = outcome;
  const refused = status !== null && (status >= 500 || status === 429);
  engine.webhooks.end(webhookId, delivered ? "success" : refused ? "fault" : "neutral");
  engine.hosts.end(host, hostFault ? "fault" : "success");
  if (!delivered) {
    engine.failingWebhooks.mark(webhookId);
    return;
  }
  engine.failingWebhooks.forget(webhookId);
  if (receiverMs > SLOW_MS) return;
  engine.slowWebhooks.forget(webhookId);
  engine.slowHosts.forget(host);
}
