import type { ClaimedWebhook } from "../../src/db/queue/webhooks.ts";
import type { Outcome } from "../../src/delivery/request/outcome.ts";
import { latencyOf } from "../parts/latencies.ts";
import { type Random, shuffled } from "../parts/random.ts";

/** How a host answers: with 200, with 503, never, or with 200 but for an outage in which it does not answer. */
export type Behaviour = "healthy" | "failing" | "hanging" | "recovering";

/** What comes of a request. */
export interface Answer {
  /** From the request to its outcome, in milliseconds. */
  durationMs: number;
  outcome: Outcome;
}

/** A host that receives. */
export interface Host {
  number: number;
  behaviour: Behaviour;
  answer: Answer;
  /** Instead of an answer while it has an outage. */
  silence: Answer;
}

/** A webhook, and where its deliveries go. */
export interface SimulatedWebhook {
  /** From 0; its id is one more. */
  number: number;
  webhook: ClaimedWebhook;
  host: Host;
  /** Its part of the arrivals is proportional to this. */
  weight: number;
}

/** Hosts that do not answer for a while. */
export interface Outage {
  hosts: number;
  fromSecond: number;
  untilSecond: number;
}

/** What receives. */
export interface ReceiversOptions {
  hosts: number;
  webhooks: number;
  /** The parts of the hosts that answer 503 and that never answer. */
  failingPart: number;
  hangingPart: number;
  /** So many hosts do not answer between two seconds. */
  outage: Outage;
  /** The exponent of Zipf's law: the nth webhook gets a part of the arrivals proportional to n^-skew. */
  skew: number;
  timeoutMs: number;
}

/** Hosts as in the scenario `spread-latency` of the bench, and webhooks spread over them at random. */
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
        process: 1,
        targetUrl: `https://host-${host.number}.example/webhooks/${number + 1}`,
        secrets: [],
        installedAppId: null,
      },
    };
  });
}

const COMMON = { started: new Date(0), responseStart: null, retryAfterMs: null };

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
