import type { Measurement } from "../parts/scenario.ts";
import type { ColdBench, ColdScenario } from "./cold-bench.ts";
import type { ColdBehaviour } from "./cold-receivers.ts";
import { type ColdRun, type Load, runCold, scaled } from "./cold-run.ts";

/** The ways in which receivers fail. */
const FAILURES: Record<string, ColdBehaviour> = {
  503: { status: 503 },
  closes: "close",
  refuses: "absent",
  "stops-in-tls": "silent",
  drops: "drops",
};
/** The names of the ways. */
export const WAYS = Object.keys(FAILURES);
const HEALTHY: ColdBehaviour = { status: 200, delayMs: 100 };
const FREQUENT = { DISPATCH_INTERVAL: "5s", DELIVERY_TIMEOUT: "10s" };
/** Retries after 5 and 10 s. */
export const FAST_RETRIES = { ...FREQUENT, RETRY_INITIAL_DELAY: "5s", RETRY_BACKOFF_COEFFICIENT: "2" };
/** A run ends after this many times the time that the healthy receivers take alone: the target is then missed by far. */
const MAX_TIMES_ALONE = 3;

/** Receivers beside others that never answer. */
export const thirdHangs: ColdScenario = {
  name: "third-hangs",
  what: "70 healthy hosts beside 30 that never answer: their rate as a share of that alone",
  targets: { "": { atLeast: 0.9 } },
  async *measure(bench, pace) {
    const load = loadOf(pace, 70, 60, FREQUENT);
    const alone = await runCold(bench, { ...load, what: "alone" });
    yield* rateOf("alone", load, alone);
    yield* beside(bench, load, alone, "", Array(30).fill("never"));
  },
};

/** Receivers beside others that fail in one of five ways, with retries. */
export const thirdFails: ColdScenario = {
  name: "third-fails",
  what: `70 healthy hosts beside 30 that fail, each in the same way (${WAYS.join(", ")})`,
  targets: Object.fromEntries(WAYS.map((way) => [way, { atLeast: 0.8 }])),
  async *measure(bench, pace) {
    const load = loadOf(pace, 70, 40, FAST_RETRIES);
    const alone = await runCold(bench, { ...load, what: "alone" });
    yield* rateOf("alone", load, alone);
    for (const way of bench.ways) yield* beside(bench, load, alone, way, Array(30).fill(FAILURES[way]));
  },
};

/** A thousand webhooks beside a thousand that fail. */
export const halfFails: ColdScenario = {
  name: "half-fails",
  what: "1,000 webhooks of 100 healthy hosts beside 1,000 of 100 others that answer 503",
  targets: { "": { atLeast: 0.8 } },
  async *measure(bench, pace) {
    const load = loadOf(pace, 100, 30, FAST_RETRIES);
    const alone = await runCold(bench, { ...load, what: "alone" });
    yield* rateOf("alone", load, alone);
    yield* beside(bench, load, alone, "", Array(100).fill({ status: 503 }));
  },
};

/** @param events the number at pace 1 */
function loadOf(
  pace: number,
  hosts: number,
  events: number,
  settings: Record<string, string>,
): Omit<Load, "what"> {
  return { pace, settings, healthy: Array(hosts).fill(HEALTHY), events: scaled(events, pace) };
}

/** The same deliveries beside bad receivers. */
async function* beside(
  bench: ColdBench,
  load: Omit<Load, "what">,
  alone: ColdRun,
  detail: string,
  bad: readonly ColdBehaviour[],
): AsyncGenerator<Measurement> {
  const maxSeconds = MAX_TIMES_ALONE * alone.seconds;
  const run = await runCold(bench, { ...load, bad, maxSeconds, what: `beside ${detail || "bad hosts"}` });
  const value = run.rate / alone.rate;
  const note = run.isCut ? { note: `at most: ended after ${Math.round(run.seconds)} s` } : {};
  yield { detail, unit: "of alone", value, count: deliveriesOf(load), ...note };
  yield* rateOf(`${detail} beside`.trim(), load, run);
}

function* rateOf(detail: string, load: Omit<Load, "what">, run: ColdRun): Generator<Measurement> {
  const note = `${run.seconds.toFixed(1)} s, ${run.inFlight.toFixed(0)} in flight, ${run.commits.toFixed(0)} commits/s`;
  yield { detail, unit: "deliveries/s", value: run.rate, count: deliveriesOf(load), note };
}

/** The number of deliveries to healthy hosts. */
function deliveriesOf({ events, healthy }: Omit<Load, "what">): number {
  return events * healthy.length * 10;
}
