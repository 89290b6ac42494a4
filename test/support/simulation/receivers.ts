import { type ClaimedWebhook, parseTarget } from "../../../src/db/queue/webhooks.ts";
import type { Outcome } from "../../../src/delivery/request/outcome.ts";
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

/** A receiving host. */
export interface Host {
  number: number;
  behaviour: Behaviour;
  answer: Answer;
  /** The outcome during an outage. */
  silence: Answer;
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
    const common = { number, silence };
    if (number < healthy) {
      const behaviour = number < options.outage.hosts ? "recovering" : "healthy";
      return { ...common, behaviour, answer: answerOf(200, latencyOf(number, healthy)) };
    }
    const nth = number - healthy;
    if (nth >= failing) return { ...common, behaviour: "hanging", answer: silence };
    return { ...common, behaviour: "failing", answer: answerOf(503, latencyOf(nth, failing)) };
  });
  const places = shuffled(
    Array.from({ length: options.webhooks }, (_, n) => n),
    random,
  );
  return places.map((place, number) => {
    const host = hosts[place % hosts.length] as Host;
    return {
      number,
      host,
      weight: (number + 1) ** -options.skew,
      webhook: {
        id: BigInt(number + 1),
        revision: 1n,
        process: 1,
        target: parseTarget(`https://host-${host.number}.example/webhooks/${number + 1}`),
        secrets: [],
        installedAppId: null,
      },
    };
  });
}

const COMMON = { started: new Date(0), responseStart: null, responseHeaders: null, retryAfterMs: null };

function answerOf(status: number, durationMs: number): Answer {
  const delivered = status === 200;
  return { durationMs, outcome: { ...COMMON, delivered, status, durationMs, error: null, failure: null } };
}

function silenceOf(durationMs: number): Answer {
  const error = `no response within ${durationMs / 1_000} s`;
  const outcome: Outcome = {
    ...COMMON,
    delivered: false,
    status: null,
    durationMs,
    error,
    failure: "webhook timeout",
  };
  return { durationMs, outcome };
}
