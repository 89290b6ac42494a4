import type { StoredAttempt } from "../support/stored-deliveries.ts";

const MINUTE_MS = 60_000;
/** How long the service waits before each retry, in minutes. */
const WAITS = [1, 5, 25];

/** A webhook, and how its receiver does. */
export interface Registered {
  id: bigint;
  process: number;
  url: string;
  /** The part of the attempts that fail, 0 to 1. */
  failing: number;
  /** How long an attempt takes, in milliseconds, more or less. */
  ms: number;
  /** Since when nothing is sent to it. */
  paused?: Date;
}

/** What is recorded of an attempt's outcome. */
type Outcome = Pick<StoredAttempt, "status" | "error" | "responseStart">;

const FAULTS: readonly Outcome[] = [
  {
    status: 503,
    error: null,
    responseStart: '{"error":"unavailable","message":"Down for maintenance."}',
  },
  { status: null, error: "no response within 15 s", responseStart: null },
  { status: 502, error: null, responseStart: "<html><head><title>502 Bad Gateway</title></head></html>" },
];
const OK: Outcome = { status: 200, error: null, responseStart: '{"received":true}' };

/** What became of a delivery up to now. */
export interface Fate {
  state: "pending" | "retrying" | "delivered" | "failed";
  attempts: StoredAttempt[];
  /** When the last attempt was over, or when the next one is. */
  at: number;
}

/** Makes up what became of a delivery whose first attempt is at a moment, by the webhook's receiver and by chance. */
export function fateOf(webhook: Registered, first: number, now: number, chance: () => number): Fate {
  const fate: Fate = { state: "pending", attempts: [], at: first };
  const held = webhook.paused?.getTime() ?? Number.POSITIVE_INFINITY;
  // Receivers fail for a while rather than now and then: what has failed once does so again.
  for (let failing = webhook.failing; fate.attempts.length < 4; failing = 0.7) {
    if (fate.at > held || fate.at > now) return fate;
    const number = fate.attempts.length + 1;
    const failed = chance() < failing;
    const outcome = failed ? (FAULTS[(number + Number(webhook.id)) % FAULTS.length] as Outcome) : OK;
    const durationMs =
      outcome.status === null ? 15_000 : Math.round(webhook.ms * (0.6 + 1.4 * chance() ** 3));
    const started = new Date(fate.at);
    fate.attempts.push({ started, durationMs, ...outcome });
    fate.at += durationMs;
    if (!failed) return { ...fate, state: "delivered" };
    fate.state = "retrying";
    if (number < 4) fate.at += (WAITS[number - 1] as number) * MINUTE_MS;
  }
  return { ...fate, state: "failed" };
}
