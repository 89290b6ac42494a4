import { setTimeout as wait } from "node:timers/promises";
import type { Bench } from "../parts/bench.ts";
import { startChild } from "../parts/child.ts";
import { triggerFor, warmUp } from "../parts/dispatching.ts";
import { assertPending, keepPending } from "../parts/keep-pending.ts";
import { latencyOf } from "../parts/latencies.ts";
import { watchMemory } from "../parts/memory.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";
import { percentile } from "../parts/timed-calls.ts";
import type { PublisherMethods } from "../processes/publisher.ts";
import type { Behaviour } from "../processes/receivers.ts";

const HOSTS = 1_000;
const HANGING = 20;
const FAILING = 30;
const HEALTHY = HOSTS - HANGING - FAILING;
/** The queue of a host is refilled when it has fewer deliveries: some eight seconds' worth of the fastest. */
const MIN_PENDING = 500;
/** The time before the rate is measured, in seconds: the hanging hosts have timed out, and windows have grown. */
const LEAD_S = 20;
/** The time of publishing before latencies are measured, in seconds: the first retries are due too. */
const PUBLISHING_LEAD_S = 60;
/** The part of the measured rate at which events are published. */
const PART_OF_MAXIMUM = 0.5;
/** The timeout for the arrival of an event, in milliseconds; then the measurement fails. */
const ARRIVAL_TIMEOUT_MS = 30_000;
const POLL_MS = 500;

/** A realistic mix of receivers: near and far, some slow, a few that never respond, a few that fail. */
export const spreadLatency: Scenario = {
  name: "spread-latency",
  what: "1,000 hosts that answer after 20 ms to 3 s; 2 % never answer, 3 % answer 503: the healthy ones' rate, and their latency at half of it (count: seconds)",
  count: { full: 60, small: 20 },
  targets: { "": { atLeast: 0.8 }, "latency p99": { atMost: 1_000 } },
  comparisons: [],
  async measure(bench, seconds) {
    const alone = await measureRates(bench, seconds, false);
    const beside = await measureRates(bench, seconds, true);
    const [aloneRate, besideRate] = [sum(alone.rates), sum(beside.rates)];
    const ratios = beside.rates.map((rate, n) => rate / (alone.rates[n] as number));
    const perSecond = (besideRate * PART_OF_MAXIMUM) / HEALTHY;
    const latencies = await measureLatencies(bench, seconds, perSecond);
    return [
      { detail: "", unit: "ratio", value: besideRate / aloneRate },
      { detail: "mean of hosts", unit: "ratio", value: sum(ratios) / ratios.length },
      { detail: "healthy alone", unit: "deliveries/s", value: aloneRate },
      { detail: "healthy beside bad", unit: "deliveries/s", value: besideRate },
      { detail: "memory", unit: "MiB at most", value: beside.memory },
      { detail: "published", unit: "healthy deliveries/s", value: perSecond * HEALTHY },
      { detail: "latency p50", unit: "ms", value: percentile(latencies, 0.5) },
      { detail: "latency p99", unit: "ms", value: percentile(latencies, 0.99) },
      { detail: "latency max", unit: "ms", value: percentile(latencies, 1) },
    ];
  },
};

/** Starts receivers for all hosts. The healthy ones are the first. */
function startHosts(bench: Bench): Promise<Receivers> {
  const behaviours: Behaviour[] = [
    ...Array.from({ length: HEALTHY }, (_, n) => ({ status: 200, delayMs: latencyOf(n, HEALTHY) })),
    ...Array.from({ length: HANGING }, () => "never" as const),
    ...Array.from({ length: FAILING }, (_, n) => ({ status: 503, delayMs: latencyOf(n, FAILING) })),
  ];
  return startReceivers(bench, behaviours);
}

/** Requests per second of each healthy host while all hosts have pending deliveries. */
async function measureRates(
  bench: Bench,
  seconds: number,
  besideBad: boolean,
): Promise<{ rates: number[]; memory: number }> {
  await using receivers = await startHosts(bench);
  await using stage = await openStage(bench);
  const healthy = await seedWebhooks(stage.db, stage.secrets, receivers.urls.slice(0, HEALTHY));
  await warmUp(stage, receivers, healthy);
  const bad = besideBad ? await seedWebhooks(stage.db, stage.secrets, receivers.urls.slice(HEALTHY)) : [];
  const webhooks = [...healthy, ...bad];
  await using queue = await keepPending(stage, {
    webhooks,
    counts: async () => (await receivers.counts()).slice(0, webhooks.length),
    minEach: MIN_PENDING,
  });
  using memory = watchMemory(stage.deliveryPid);
  await Promise.race([triggerFor(stage, LEAD_S), queue.failed]);
  const rates = await queue.measureRates(seconds);
  await assertPending(stage, webhooks);
  return { rates: rates.slice(0, HEALTHY), memory: memory.stop().max };
}

/**
 * The time from the response to a publish call to the arrival of the event at each healthy host, with
 * DISPATCH_ON_PUBLISH and beside the bad hosts, in milliseconds, sorted. Each event goes to all hosts. Negative if the
 * request arrives before the response.
 */
async function measureLatencies(bench: Bench, seconds: number, perSecond: number): Promise<number[]> {
  await using receivers = await startHosts(bench);
  // With the schedule enabled, because a paused one dispatches nothing.
  await using stage = await openStage(bench, { DISPATCH_ON_PUBLISH: "true" }, true);
  await seedWebhooks(stage.db, stage.secrets, receivers.urls);
  await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
  const { grpcUrl } = stage.service;
  const publish = (forSeconds: number, firstOrder: number) =>
    publisher.call("paced", {
      grpcUrl,
      key: stage.adminKey,
      perSecond,
      seconds: forSeconds,
      firstOrder,
      timeOf: "response",
    });
  await receivers.recordArrivals(HEALTHY);
  bench.show.step(`publishing ${perSecond.toFixed(2)} events per second to ${HOSTS} hosts`);
  const before = await publish(PUBLISHING_LEAD_S, 1);
  const published = await publish(seconds, 1 + before.size);
  for (const until = Date.now() + ARRIVAL_TIMEOUT_MS; ; ) {
    const arrivals = await receivers.hostArrivals();
    const times = arrivals.flatMap((ofHost) =>
      [...published].map(([order, at]) => (ofHost.get(order) ?? Number.NaN) - at),
    );
    const missing = times.filter(Number.isNaN).length;
    if (missing === 0) return times.sort((one, other) => one - other);
    if (Date.now() > until) throw new Error(`${missing} of ${times.length} deliveries did not arrive`);
    await wait(POLL_MS, undefined, { signal: bench.stopping });
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((all, value) => all + value, 0);
}
