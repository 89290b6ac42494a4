import type { FailureOf, Outcome } from "../../../src/delivery/request/outcome.ts";
import { ATTEMPTS_PER_ROUND, type RecordedState } from "../../../src/queue/results.ts";
import { type ClaimedWebhook, parseTarget } from "../../../src/webhooks/claimed-webhooks.ts";
import type { SimulatedDelivery } from "./queue-table.ts";

/** The behaviour of a host: status 200, status 503, no response, or 200 except during an outage. */
export type Behaviour = "healthy" | "failing" | "hanging" | "recovering";

/** The outcome of a request. */
export interface Answer {
  /** The time from request to outcome, in milliseconds. */
  durationMs: number;
  outcome: Outcome;
}

/** A request, by the webhook and the number of attempts before. */
export interface Asked {
  of: SimulatedWebhook;
  attempts: number;
}

/** A receiving host. */
export interface Host {
  number: number;
  behaviour: Behaviour;
  /** The outcome of a request that starts at a time, in milliseconds. */
  answer: (asked: Asked, at: number) => Answer;
}

/** A webhook and its target. */
export interface SimulatedWebhook {
  /** From 0; its id is one more. */
  number: number;
  webhook: ClaimedWebhook;
  host: Host;
  /** Its share of arrivals is proportional to this. */
  weight: number;
}

/** A webhook of a host. @param number from 0 */
export function webhookAt(host: Host, number: number, weight = 1): SimulatedWebhook {
  const target = parseTarget(`https://host-${host.number}.example/webhooks/${number + 1}`);
  const id = BigInt(number + 1);
  const webhook = { id, revision: 1n, process: 1, target, secrets: [], installedAppId: null };
  return { number, host, weight, webhook };
}

const NO_RESPONSE: Outcome = {
  delivered: false,
  started: new Date(0),
  durationMs: 0,
  status: null,
  error: null,
  responseStart: null,
  responseHeaders: null,
  timing: null,
  retryAfterMs: null,
  failure: null,
};

/** A response after a time, in milliseconds. */
export function answerOf(status: number, durationMs: number): Answer {
  return { durationMs, outcome: { ...NO_RESPONSE, delivered: status < 300, status, durationMs } };
}

/** A failure without a response, after a time in milliseconds. */
export function faultOf(failure: FailureOf, durationMs: number, error: string | null = null): Answer {
  return { durationMs, outcome: { ...NO_RESPONSE, durationMs, error, failure } };
}

/** No response within the timeout, in milliseconds. */
export function silenceOf(timeoutMs: number): Answer {
  return faultOf("webhook timeout", timeoutMs, `no response within ${timeoutMs / 1_000} s`);
}

/** Receives the events of deliveries. */
export interface Measuring {
  arrived(time: number, webhook: SimulatedWebhook): void;
  started(delivery: SimulatedDelivery, time: number): void;
  /** Answers the state of a delivery after an attempt. */
  recorded(delivery: SimulatedDelivery, delivered: boolean): AttemptedState;
}

export type AttemptedState = Exclude<RecordedState, "cancelled">;

/** The state of a delivery after an attempt. */
export function stateAfter({ attempts }: SimulatedDelivery, delivered: boolean): AttemptedState {
  if (delivered) return "delivered";
  return attempts + 1 >= ATTEMPTS_PER_ROUND ? "failed" : "retrying";
}
