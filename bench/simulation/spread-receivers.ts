import type { Random } from "../../test/support/random.ts";
import {
  type Answer,
  type Asked,
  answerOf,
  type Behaviour,
  type Host,
  type SimulatedWebhook,
  silenceOf,
  webhookAt,
} from "../../test/support/simulation/receivers.ts";
import { latencyOf } from "../parts/latencies.ts";

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

/** The same items in random order. */
function shuffled<T>(items: readonly T[], random: Random): T[] {
  const result = [...items];
  for (let n = result.length - 1; n > 0; n -= 1) {
    const other = Math.floor(random() * (n + 1));
    [result[n], result[other]] = [result[other] as T, result[n] as T];
  }
  return result;
}
