import { open } from "node:fs/promises";
import path from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { count as run } from "../../src/lib/pg/database.ts";
import type { Bench } from "../parts/bench.ts";
import { startChild } from "../parts/child.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { percentile } from "../parts/timed-calls.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

const PER_SECOND = 100;
/** The webhooks of which each event goes to one, each with its own receiver. */
const WEBHOOKS = 20;
const WARM_UP_SECONDS = 3;
const SLOW_MS = 2_000;
/** The timeout for the arrival of an event, in milliseconds; then the measurement fails. */
const ARRIVAL_TIMEOUT_MS = 30_000;

/** The syncs that measure the disk, which each commit waits for. */
const SYNCS = 1_000;
const PAGE_BYTES = 8_192;

/** The time from publishing to arrival with DISPATCH_ON_PUBLISH. */
export const latency = latencyOf("latency", "", false);
/** The same if each event also goes to another receiver, which responds after two seconds and is not measured. */
export const latencyBesideSlow = latencyOf(
  "latency-slow",
  "; each also to another that answers after 2 s",
  true,
);

function latencyOf(name: string, more: string, besideSlow: boolean): Scenario {
  return {
    name,
    what: `${PER_SECOND} events a second with DISPATCH_ON_PUBLISH, each to one of ${WEBHOOKS} webhooks: from the call to the arrival at the receiver${more}`,
    count: { full: 300 * PER_SECOND, small: 1_000 },
    targets: { p50: { atMost: 30 }, p99: { atMost: 150 }, max: { atMost: 1_000 } },
    comparisons: [],
    measure: (bench, count) => measureOnce(bench, count, besideSlow),
  };
}

async function measureOnce(bench: Bench, count: number, besideSlow: boolean): Promise<Measurement[]> {
  await using receivers = await startReceivers(bench, [
    ...Array.from({ length: WEBHOOKS }, () => ({ status: 200 })),
    ...(besideSlow ? [{ status: 200, delayMs: SLOW_MS }] : []),
  ]);
  // With the schedule enabled, because a paused one dispatches nothing.
  await using stage = await openStage(bench, { DISPATCH_ON_PUBLISH: "true" }, true);
  const webhooks = await seedWebhooks(
    stage.db,
    stage.secrets,
    receivers.urls.map((url) => `${url}/hooks`),
  );
  await takeTurns(stage, webhooks.slice(0, WEBHOOKS));
  await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
  const pace = { grpcUrl: stage.service.grpcUrl, key: stage.adminKey, perSecond: PER_SECOND };
  await receivers.recordArrivals(WEBHOOKS);
  await publisher.call("paced", { ...pace, seconds: WARM_UP_SECONDS, firstOrder: 1 });
  const disk = await syncTimes(bench);
  const firstOrder = 1 + WARM_UP_SECONDS * PER_SECOND;
  const published = await publisher.call("paced", { ...pace, seconds: count / PER_SECOND, firstOrder });

  const all = firstOrder - 1 + published.size;
  let arrived = await receivers.arrivals();
  for (const until = Date.now() + ARRIVAL_TIMEOUT_MS; arrived.size < all && Date.now() < until; ) {
    await wait(100, undefined, { signal: bench.stopping });
    arrived = await receivers.arrivals();
  }
  if (arrived.size < all) throw new Error(`${all - arrived.size} of ${all} events did not arrive`);
  const requests = await receivers.count(WEBHOOKS);
  if (requests !== all) throw new Error(`${requests} requests came for ${all} events, each for one webhook`);
  const times = [...published]
    .map(([order, at]) => (arrived.get(order) as number) - at)
    .sort((one, other) => one - other);
  const slowRequests = (await receivers.count()) - requests;
  return [
    { detail: "p50", unit: "ms", value: percentile(times, 0.5) },
    { detail: "p99", unit: "ms", value: percentile(times, 0.99) },
    { detail: "max", unit: "ms", value: percentile(times, 1) },
    { detail: "disk p50", unit: "ms", value: percentile(disk, 0.5) },
    { detail: "disk p99", unit: "ms", value: percentile(disk, 0.99) },
    ...(besideSlow ? [{ detail: "slow receiver", unit: "requests", value: slowRequests }] : []),
  ];
}

/** The times that the disk takes to sync a written page while nothing is published, in milliseconds, ascending. */
async function syncTimes({ folder, stopping }: Bench): Promise<number[]> {
  await using file = await open(path.join(folder, "synced"), "w");
  const page = Buffer.alloc(PAGE_BYTES, 1);
  const times: number[] = [];
  for (let n = 0; n < SYNCS; n += 1) {
    const began = performance.now();
    await file.write(page);
    await file.datasync();
    times.push(performance.now() - began);
    await wait(1_000 / PER_SECOND, undefined, { signal: stopping });
  }
  return times.sort((one, other) => one - other);
}

/**
 * Gives the webhooks filters, so that each order goes to one of them, in turn. There are too few event types for one
 * each.
 */
async function takeTurns({ db }: Stage, webhooks: readonly bigint[]): Promise<void> {
  await run(
    db,
    `update webhooks set filter = 'event.order_id % ' || cardinality(:webhooks::bigint[]) || ' == ' || turn - 1
      from unnest(:webhooks::bigint[]) with ordinality as given(webhook_id, turn) where id = webhook_id`,
    { webhooks },
  );
}
