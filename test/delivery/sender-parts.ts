import pino from "pino";
import { onTestFinished } from "vitest";
import { ClaimOwner } from "../../src/delivery/claim-owner.ts";
import type { Outcome } from "../../src/delivery/request/outcome.ts";
import { Sender, type SenderParts } from "../../src/delivery/sender.ts";
import type { Clock } from "../../src/lib/process/clock.ts";
import type { ClaimedDelivery } from "../../src/queue/claims.ts";
import { inThisThread } from "../support/filter-runner.ts";
import { answerOf, type Host, webhookAt } from "../support/simulation/receivers.ts";

/** What tests of the sender alone give it, without a database or receivers. */
export const DELIVERED: Outcome = answerOf(200, 1).outcome;
export const OWNER = new ClaimOwner(1);

/** Claimed deliveries of the webhook with this id, which has a host of its own. */
export function claimsOf(
  id: number,
  deliveries: number,
  { revision = 1n, workerId = 1, customer = null as string | null } = {},
): ClaimedDelivery[] {
  const host: Host = { number: id, behaviour: "healthy", answer: () => answerOf(200, 1) };
  const webhook = { ...webhookAt(host, id - 1).webhook, revision, customer };
  const token = { workerId, attempts: 0, table: "queue" as const };
  return Array.from({ length: deliveries }, (_, n) => ({
    id: String(n),
    eventId: "e",
    webhook,
    token,
    runId: 1,
  }));
}

/** A sender of which everything may be sent, and each result is recorded at once, but for what the test gives. */
export function startSender(
  clock: Clock,
  parts: Partial<SenderParts> & Pick<SenderParts, "post">,
  limits = { max: 64, perHost: 4, perWebhook: 4 },
): Sender {
  const usual: Omit<SenderParts, "post"> = {
    clock,
    log: pino({ level: "silent" }),
    sign: () => ({ "webhook-id": "", "webhook-timestamp": "", "webhook-signature": "" }),
    additions: () => ({ headers: [] }),
    recorder: { unrecorded: 0, record: (_result, recorded) => clock.soon(() => recorded("delivered")) },
    filters: { runner: inThisThread, onSlow: () => {}, onStopped: () => {} },
    release: async () => {},
    endFiltered: async () => {},
    lease: {
      isValid: () => true,
      hasLost: () => false,
      retire: () => {},
      settle: () => {},
      verify: () => {},
    },
    watch: { isFresh: () => true, revision: 0n, stoppedSince: async () => new Set() },
    contents: {
      room: 1_000,
      hold: async () => [],
      of: () => ({ payload: "{}", userId: "" }),
      release: () => {},
    },
    share: { hasRoom: true, request: () => {}, connection: () => {}, sample: () => 0 },
    bottlenecks: { waitFor: (statement) => statement, sample: () => {} },
    handshakes: { backlogMs: 0 },
  };
  const sender = new Sender({ ...usual, ...parts }, limits);
  onTestFinished(() => sender.close());
  return sender;
}
