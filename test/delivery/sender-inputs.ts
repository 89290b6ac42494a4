import type { ClaimedDelivery } from "../../src/db/queue/claims.ts";
import { parseTarget } from "../../src/db/queue/webhooks.ts";
import type { Outcome } from "../../src/delivery/request/outcome.ts";
import type { Owner } from "../../src/delivery/sender.ts";

/** What tests of the sender alone give it, without a database or receivers. */
export const DELIVERED: Outcome = {
  delivered: true,
  started: new Date(0),
  durationMs: 1,
  status: 200,
  error: null,
  responseStart: null,
  responseHeaders: null,
  retryAfterMs: null,
  failure: null,
};
export const OWNER: Owner = { runId: 1, recorded: () => {}, returned: () => {} };

/** Claimed deliveries of the webhook with this number, which has a host of its own. */
export function claimsOf(number: number, deliveries: number): ClaimedDelivery[] {
  const webhook = {
    id: BigInt(number),
    revision: 1n,
    process: 1,
    target: parseTarget(`https://host-${number}.example/`),
    secrets: [],
    installedAppId: null,
  };
  const token = { workerId: 1, attempts: 0, table: "queue" as const };
  return Array.from({ length: deliveries }, (_, n) => ({ id: String(n), eventId: "e", webhook, token }));
}
