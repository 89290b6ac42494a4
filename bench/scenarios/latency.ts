import { setTimeout as wait } from "node:timers/promises";
import type { Bench } from "../parts/bench.ts";
import { startChild } from "../parts/child.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { seedWebhooks } from "../parts/seeding.ts";
import { openStage } from "../parts/stage.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

const PER_SECOND = 100;
const WARM_UP_SECONDS = 3;
const SLOW_MS = 2_000;
/** The timeout for the arrival of an event, in milliseconds; then the measurement fails. */
const ARRIVAL_TIMEOUT_MS = 30_000;

/** The time from publishing to arrival with DISPATCH_ON_PUBLISH. */
export const latency = latencyOf("latency", "", false);
/** The same if each event also goes to a receiver that responds after two seconds. */
export const latencyBesideSlow = latencyOf(
  "latency-slow",
  "; each also to a receiver that answers after 2 s",
  true,
);

function latencyOf(name: string, more: string, besideSlow: boolean): Scenario {
  return {
    name,
    what: `${PER_SECOND} events a second with DISPATCH_ON_PUBLISH: from the call to the arrival at the receiver${more}`,
    count: { full: 300 * PER_SECOND, small: 1_000 },
    targets: { p50: { atMost: 10 }, p99: { atMost: 60 }, max: { atMost: 1_000 } },
    comparisons: [],
    measure: (bench, count) => measureOnce(bench, count, besideSlow),
  };
}

async function measureOnce(bench: Bench, count: number, besideSlow: boolean): Promise<Measurement[]> {
  await using receivers = await startReceivers(bench, [
    { status: 200 },
    ...(besideSlow ? [{ status: 200, delayMs: SLOW_MS }] : []),
  ]);
  // With the schedule enabled, because a paused one dispatches nothing.
  await using stage = await openStage(bench, { DISPATCH_ON_PUBLISH: "true" }, true);
  await seedWebhooks(
    stage.db,
    stage.secrets,
    receivers.urls.map((url) => `${url}/hooks`),
  );
  await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
  const pace = { grpcUrl: stage.service.grpcUrl, key: stage.adminKey, perSecond: PER_SECOND };
  await receivers.recordArrivals(1);
  await publisher.call("paced", { ...pace, seconds: WARM_UP_SECONDS, firstOrder: 1 });
  const firstOrder = 1 + WARM_UP_SECONDS * PER_SECOND;
  const published = await publisher.call("paced", { ...pace, seconds: count / PER_SECOND, firstOrder });

  const all = firstOrder - 1 + published.size;
  let arrived = await receivers.arrivals();
  for (const until = Date.now() + ARRIVAL_TIMEOUT_MS; arrived.size < all && Date.now() < until; ) {
    await wait(100, undefined, { signal: bench.stopping });
    arrived = await receivers.arrivals();
  }
  if (arrived.size < all) throw new Error(`${all - arrived.size} of ${all} events did not arrive`);
  const times = [...published]
    .map(([order, at]) => (arrived.get(order) as number) - at)
    .sort((one, other) => one - other);
  const percentile = (part: number) => times[Math.ceil(times.length * part) - 1] as number;
  return [
    { detail: "p50", unit: "ms", value: percentile(0.5) },
    { detail: "p99", unit: "ms", value: percentile(0.99) },
    { detail: "max", unit: "ms", value: percentile(1) },
  ];
}
