import type { Bench } from "../parts/bench.ts";
import { tellOfFailures, triggerFor, warmUp } from "../parts/dispatching.ts";
import { assertPending, keepPending } from "../parts/keep-pending.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import type { Behaviour } from "../processes/receivers.ts";

const FAST_HOSTS = 100;
const SLOW_HOSTS = 20;
const SLOW_MS = 14_000;
/** Longer than the default: on a machine this busy, responses after 14 s come later than 15 s. */
const TIMEOUT_S = 20;
/** The measured time, in seconds. */
const MEASURED_S = 60;
/** The time before it in which the fast hosts have deliveries too, in seconds. */
const LEAD_S = 10;
/** The queue of a fast host is refilled when it has fewer deliveries, so that it never ends: some five seconds' worth. */
const MIN_PENDING = 500;
/** The time in which the slow hosts still answer at different speeds, in seconds. */
const SPREAD_S = 30;
/** The time from then until each has answered its earlier requests, and others after 14 s, in seconds. */
const ANSWERED_S = (2 * SLOW_MS) / 1_000 + 3;

/** The effect of slow but healthy receivers with long queues on fast ones. */
export const slowHealthy: Scenario = {
  name: "slow-healthy",
  what: "100 fast hosts beside 20 that answer after 14 s (count: deliveries queued for each of them): the fast ones' rate",
  count: { full: 100_000, small: 30_000 },
  targets: { "": { atLeast: 0.9 } },
  comparisons: [],
  async measure(bench, count) {
    const alone = await measureFast(bench, 0);
    const beside = await measureFast(bench, count);
    return [
      { detail: "", unit: "ratio", value: beside.fast / alone.fast },
      { detail: "fast alone", unit: "deliveries/s", value: alone.fast },
      { detail: "fast beside slow", unit: "deliveries/s", value: beside.fast },
      { detail: "slow", unit: "deliveries/s", value: beside.slow },
      { detail: "slow in flight, before", unit: "requests", value: beside.inFlightBefore },
      { detail: "slow in flight, after", unit: "requests", value: beside.inFlightAfter },
    ];
  },
};

interface Rates {
  /** Requests per second at all fast hosts. */
  fast: number;
  /** Responses per second of all slow hosts. */
  slow: number;
  /** Requests in flight to all slow hosts, before and after the measured time. */
  inFlightBefore: number;
  inFlightAfter: number;
}

/** The rates while all hosts have pending deliveries. @param slowEach the number queued for each slow host */
async function measureFast(bench: Bench, slowEach: number): Promise<Rates> {
  await using receivers = await startReceivers(bench, [
    ...Array.from({ length: FAST_HOSTS }, (): Behaviour => ({ status: 200 })),
    ...Array.from({ length: SLOW_HOSTS }, (_, n): Behaviour => ({ status: 200, delayMs: spreadDelay(n) })),
  ]);
  await using stage = await openStage(bench, { DELIVERY_TIMEOUT: `${TIMEOUT_S}s` });
  const fast = await seedWebhooks(stage.db, stage.secrets, receivers.urls.slice(0, FAST_HOSTS));
  await warmUp(stage, receivers, fast);
  const slow =
    slowEach > 0 ? await seedWebhooks(stage.db, stage.secrets, receivers.urls.slice(FAST_HOSTS)) : [];
  if (slowEach > 0) {
    await seedPending(stage, { events: slowEach, webhooks: slow });
    await occupySlow(stage, receivers);
  }
  await using queue = await keepPending(stage, {
    webhooks: fast,
    counts: async () => (await receivers.counts()).slice(0, FAST_HOSTS),
    minEach: MIN_PENDING,
  });
  await Promise.race([triggerFor(stage, LEAD_S), queue.failed]);
  const before = await slowRequests(receivers);
  const rates = await queue.measureRates(MEASURED_S);
  const after = await slowRequests(receivers);
  if (slowEach > 0) {
    // Before the checks, because their errors leave no figures.
    stage.bench.show.step(
      `${Math.round(sum(rates))} fast deliveries/s; in flight to the slow hosts: ${after.inFlight.join(" ")}`,
    );
    await tellOfFailures(stage, { webhooks: slow, what: "to the slow" });
    if (after.inFlight.includes(0)) throw new Error("a slow host had no request in flight");
    await assertPending(stage, slow);
  }
  return {
    fast: sum(rates),
    slow: (sum(after.answered) - sum(before.answered)) / MEASURED_S,
    inFlightBefore: sum(before.inFlight),
    inFlightAfter: sum(after.inFlight),
  };
}

/** The delay of the nth slow host's responses at first, in milliseconds. */
function spreadDelay(nth: number): number {
  return Math.round((SLOW_MS * (nth + 1)) / SLOW_HOSTS);
}

/**
 * Dispatches to the slow hosts alone until they have as many requests in flight as they ever get, and each has answered after
 * 14 s. They answer at different speeds at first. Otherwise all would get thousands of new connections at the same moment, and
 * the time for these, added to 14 s, would exceed the timeout.
 */
async function occupySlow(stage: Stage, receivers: Receivers): Promise<void> {
  await triggerFor(stage, SPREAD_S);
  await receivers.change(FAST_HOSTS, { status: 200, delayMs: SLOW_MS });
  const before = await slowRequests(receivers);
  await triggerFor(stage, ANSWERED_S);
  const { answered, inFlight } = await slowRequests(receivers);
  // Requests that were in flight at the change are answered at the earlier speed.
  const waiting = answered.filter(
    (count, n) => count <= (before.answered[n] as number) + (before.inFlight[n] as number),
  );
  if (waiting.length > 0) throw new Error(`${waiting.length} slow hosts have not answered after 14 s`);
  stage.bench.show.step(`${sum(inFlight)} requests in flight to the slow hosts`);
}

/** The requests to each slow host so far. */
async function slowRequests(receivers: Receivers): Promise<{ answered: number[]; inFlight: number[] }> {
  const received = (await receivers.counts()).slice(FAST_HOSTS);
  const inFlight = (await receivers.inFlight()).slice(FAST_HOSTS);
  return { inFlight, answered: received.map((count, n) => count - (inFlight[n] as number)) };
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}
