import { setTimeout as wait } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { ReplayService } from "../../gen/webhook/v1/replay_pb.ts";
import { count, rows } from "../../src/lib/pg/database.ts";
import type { Bench } from "../parts/bench.ts";
import { startChild } from "../parts/child.ts";
import { triggerFor, warmUp } from "../parts/dispatching.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { seedPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { percentile } from "../parts/timed-calls.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

/** The numbers of webhooks, each on its own host. */
const WEBHOOKS = [20, 300];
const ANSWER_MS = 20;
/** Deliveries queued per second of the measurement of the rate, more than can be sent. */
const PER_SECOND = 15_000;
/** Failed deliveries per second of a measurement, more than a replay sends. */
const FAILED_PER_SECOND = 3_000;
const EVENTS_PER_SECOND = 100;
/** Ids of orders that no replayed event has. */
const FIRST_ORDER = 100_000_001;
const WARM_UP_SECONDS = 3;
/** The timeout for the arrival of an event, in milliseconds; then the measurement fails. */
const ARRIVAL_TIMEOUT_MS = 60_000;

/** First attempts beside a replay of the same webhooks' failed deliveries. */
export const replay: Scenario = {
  name: "replay",
  what: "first attempts beside a replay of the same webhooks: their rate at full speed, and their latency with DISPATCH_ON_PUBLISH",
  count: { full: 60, small: 15 },
  targets: { "of 20 webhooks": { atLeast: 0.9 }, "of 300 webhooks": { atLeast: 0.9 } },
  comparisons: [],
  async measure(bench, seconds) {
    const measured: Measurement[] = [];
    for (const webhooks of WEBHOOKS) measured.push(...(await measureRates(bench, seconds, webhooks)));
    return [...measured, ...(await measureLatency(bench, seconds))];
  },
};

async function measureRates(bench: Bench, seconds: number, webhooks: number): Promise<Measurement[]> {
  const alone = await measureRate(bench, seconds, webhooks, false);
  const beside = await measureRate(bench, seconds, webhooks, true);
  if (beside.replayed === 0) throw new Error("nothing was replayed meanwhile");
  const of = `of ${webhooks} webhooks`;
  return [
    { detail: of, unit: "ratio", value: beside.firsts / alone.firsts },
    { detail: `${of}, alone`, unit: "first attempts/s", value: alone.firsts },
    { detail: `${of}, beside a replay`, unit: "first attempts/s", value: beside.firsts },
    { detail: `${of}, replayed meanwhile`, unit: "deliveries/s", value: beside.replayed },
  ];
}

/** Measures first attempts per second while more wait than can be sent. */
async function measureRate(
  bench: Bench,
  seconds: number,
  hosts: number,
  replaying: boolean,
): Promise<{ firsts: number; replayed: number }> {
  const behaviours = Array.from({ length: hosts }, () => ({ status: 200, delayMs: ANSWER_MS }));
  await using receivers = await startReceivers(bench, behaviours);
  await using stage = await openStage(bench);
  const webhooks = await seedWebhooks(stage.db, stage.secrets, receivers.urls);
  await warmUp(stage, receivers, webhooks);
  await seedFailed(stage, webhooks, (seconds * FAILED_PER_SECOND) / hosts);
  await seedPending(stage, { events: Math.ceil((seconds * PER_SECOND) / hosts), webhooks });
  if (replaying) await startReplay(stage);
  const [{ at } = { at: new Date() }] = await rows<{ at: Date }>(stage.db, "select now() as at");
  await triggerFor(stage, seconds);
  const [found] = await rows<{ firsts: number; replayed: number }>(
    stage.db,
    `select count(*) filter (where number = 1)::int as firsts, count(*) filter (where number > 1)::int as replayed
      from all_attempts where started > :at`,
    { at },
  );
  return { firsts: (found?.firsts ?? 0) / seconds, replayed: (found?.replayed ?? 0) / seconds };
}

/** Measures the time from publishing to arrival, alone and while the webhook's failed deliveries are replayed. */
async function measureLatency(bench: Bench, seconds: number): Promise<Measurement[]> {
  await using receivers = await startReceivers(bench, [{ status: 200, delayMs: ANSWER_MS }]);
  await using stage = await openStage(bench, { DISPATCH_ON_PUBLISH: "true" }, true);
  const webhooks = await seedWebhooks(stage.db, stage.secrets, [`${receivers.urls[0]}/hooks`]);
  await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
  await receivers.recordArrivals();
  const publish = (firstOrder: number, forSeconds: number) =>
    publisher.call("paced", {
      grpcUrl: stage.service.grpcUrl,
      key: stage.adminKey,
      perSecond: EVENTS_PER_SECOND,
      seconds: forSeconds,
      firstOrder,
    });
  await publish(1, WARM_UP_SECONDS);
  const alone = await arrivalTimes(bench, receivers, await publish(FIRST_ORDER, seconds));
  await seedFailed(stage, webhooks, seconds * FAILED_PER_SECOND);
  await startReplay(stage);
  // The replay begins within two seconds.
  await wait(WARM_UP_SECONDS * 1_000, undefined, { signal: bench.stopping });
  const before = await receivers.count();
  const published = await publish(FIRST_ORDER + EVENTS_PER_SECOND * seconds, seconds);
  const replayed = (await receivers.count()) - before - published.size;
  const beside = await arrivalTimes(bench, receivers, published);
  return [
    { detail: "latency p50 alone", unit: "ms", value: percentile(alone, 0.5) },
    { detail: "latency p99 alone", unit: "ms", value: percentile(alone, 0.99) },
    { detail: "latency p50 beside", unit: "ms", value: percentile(beside, 0.5) },
    { detail: "latency p99 beside", unit: "ms", value: percentile(beside, 0.99) },
    { detail: "replayed to one webhook", unit: "deliveries/s", value: replayed / seconds },
  ];
}

/** Stores failed deliveries of each webhook. */
async function seedFailed(stage: Stage, webhooks: readonly bigint[], each: number): Promise<void> {
  await seedPending(stage, { events: Math.ceil(each), webhooks });
  await count(
    stage.db,
    `with gone as (delete from queue where claimed_by is null returning id, event_id, webhook_id)
      insert into deliveries (id, event_id, webhook_id, outcome, attempts, round_start, status, duration_ms, started, finished)
      select id, event_id, webhook_id, 'failed', 4, 0, 503, 20, now(), now() from gone`,
  );
  await stage.db.raw("vacuum (analyze) queue, deliveries");
}

/** Starts a replay of everything that failed. */
async function startReplay({ service, adminKey }: Stage): Promise<void> {
  const client = createClient(ReplayService, createGrpcTransport({ baseUrl: service.grpcUrl }));
  const headers = { "X-Service-Key": adminKey };
  await client.startReplay({ what: { case: "resend", value: {} } }, { headers });
}

/** The time from the call to the arrival of each event, in milliseconds, sorted. */
async function arrivalTimes(
  bench: Bench,
  receivers: Receivers,
  published: ReadonlyMap<number, number>,
): Promise<number[]> {
  for (const until = Date.now() + ARRIVAL_TIMEOUT_MS; ; ) {
    const arrived = await receivers.arrivals();
    const times = [...published].flatMap(([order, at]) => (arrived.get(order) ?? Number.NaN) - at);
    const missing = times.filter(Number.isNaN).length;
    if (missing === 0) return times.sort((one, other) => one - other);
    if (Date.now() > until) throw new Error(`${missing} of ${published.size} events did not arrive`);
    await wait(100, undefined, { signal: bench.stopping });
  }
}
