import { type ClaimedWebhook, parseTarget } from "../../../src/db/queue/webhooks.ts";
import type { FailureOf, Outcome } from "../../../src/delivery/request/outcome.ts";
import { type Random, shuffled } from "../random.ts";
import { latencyOf } from "./latencies.ts";

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

/** Hosts that do not respond for a while. */
export interface Outage {
  hosts: number;
  fromSecond: number;
  untilSecond: number;
}

/** Options of the receivers. */
export interface ReceiversOptions {
  hosts: number;
  webhooks: number;
  /** The shares of hosts that respond with 503, and that never respond. */
  failingPart: number;
  hangingPart: number;
  /** Hosts that do not respond between two times, in seconds. */
  outage: Outage;
  /** The exponent of Zipf's law: the nth webhook's share of arrivals is proportional to n^-skew. */
  skew: number;
  timeoutMs: number;
}

/** Hosts as in the scenario `spread-latency`, and webhooks distributed over them randomly. */
export function createReceivers(options: ReceiversOptions, random: Random): SimulatedWebhook[] {
  const hanging = Math.round(options.hosts * options.hangingPart);
  const failing = Math.round(options.hosts * options.failingPart);
  const healthy = options.hosts - hanging - failing;
  const silence = silenceOf(options.timeoutMs);
  const hosts = Array.from({ length: options.hosts }, (_, number): Host => {
    if (number < options.outage.hosts && number < healthy) {
      const [from, until] = [options.outage.fromSecond * 1_000, options.outage.untilSecond * 1_000];
      const answer = answerOf(200, latencyOf(number, healthy));
      const behave = (_asked: Asked, at: number) => (at >= from && at < until ? silence : answer);
      return { number, behaviour: "recovering", answer: behave };
    }
    const always = (behaviour: Behaviour, answer: Answer) => ({ number, behaviour, answer: () => answer });
    if (number < healthy) return always("healthy", answerOf(200, latencyOf(number, healthy)));
    const nth = number - healthy;
    if (nth >= failing) return always("hanging", silence);
    return always("failing", answerOf(503, latencyOf(nth, failing)));
  });
  const places = shuffled(
    Array.from({ length: options.webhooks }, (_, n) => n),
    random,
  );
  return places.map((place, number) =>
    webhookAt(hosts[place % hosts.length] as Host, number, (number + 1) ** -options.skew),
  );
}

/** A webhook of a host. @param number from 0 */
export function webhookAt(host: Host, number: number, weight = 1): SimulatedWebhook {
  const target = parseTarget(`https://host-${host.number}.example/webhooks/${number + 1}`);
  const webhook = {
    id: BigInt(number + 1),
    revision: 1n,
    process: 1,
    target,
    secrets: [],
    installedAppId: null,
  };
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
