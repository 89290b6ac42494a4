import pino from "pino";
import type { ClaimedDelivery } from "../../src/db/queue/claims.ts";
import { parseTarget } from "../../src/db/queue/webhooks.ts";
import { InFlightLimit } from "../../src/delivery/limits/in-flight-limit.ts";
import type { Outcome } from "../../src/delivery/request/outcome.ts";
import type { Owner, SenderParts } from "../../src/delivery/sender.ts";
import type { Clock } from "../../src/process/clock.ts";

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
export const FAILED: Outcome = { ...DELIVERED, delivered: false, status: 503 };
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

/** All that a sender needs but what sends: everything may be sent, and each result is recorded at once. */
export function senderParts(clock: Clock): Omit<SenderParts, "post"> {
  return {
    clock,
    log: pino({ level: "silent" }),
    sign: () => ({ "webhook-id": "", "webhook-timestamp": "", "webhook-signature": "" }),
    additions: () => ({ headers: [] }),
    recorder: { unrecorded: 0, record: (_result, recorded) => clock.soon(() => recorded("delivered")) },
    filters: { unmatched: async () => new Set() },
    unsent: { release: async () => {}, endFiltered: async () => {} },
    lease: { isValid: () => true, hasLost: () => false, settle: () => {}, verify: () => {} },
    watch: { isFresh: () => true, revision: 0n, stoppedSince: async () => new Set() },
    contents: {
      room: 1_000,
      hold: async () => [],
      of: () => ({ payload: "{}", userId: "" }),
      release: () => {},
      dropUnused: () => {},
    },
    limit: new InFlightLimit(64, () => 0),
    handshakes: { backlogMs: 0 },
  };
}
