import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import {
  DeliveryService,
  DeliveryState,
  type ListDeliveriesRequestSchema,
} from "../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { count, rows } from "../../src/lib/pg/database.ts";
import { retentionStep } from "../../src/retention/retention.ts";
import type { Bench } from "../parts/bench.ts";
import { startChild } from "../parts/child.ts";
import { databaseTime, walPosition, walSince } from "../parts/database-work.ts";
import { dispatch, untilRunsClosed, warmUp } from "../parts/dispatching.ts";
import { BUSY_USER, DAYS, eventsOf, HOSTS, seedGrownHistory, userOf } from "../parts/grown-history.ts";
import { orderNumber, trackingNumber } from "../parts/payload.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { countWebhooks, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { percentile, timesOf, transportTo } from "../parts/timed-calls.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

/** The number of receivers of published events, one webhook each. */
const RECEIVERS = 10;
/** The number of events published to each receiver, in either database. */
const EVENTS = 10_000;
/** The number of calls per combination of filters. */
const CALLS = 8;
const HOUR_MS = 3_600_000;

type List = MessageInitShape<typeof ListDeliveriesRequestSchema>;

/** The effect of a large history: the cost of a delivery, the latency of lists, the time to drop a day. */
export const grown: Scenario = {
  name: "grown",
  what: "beside the log of 30 days of 50,000 webhooks: a delivery's cost, lists of every filter, searches, a day dropped",
  count: { full: 20_000_000, small: 200_000 },
  targets: {
    "": { atMost: 1.2 },
    WAL: { atMost: 1.2 },
    "lists p99": { atMost: 500 },
    "slowest filter": { atMost: 500 },
    "search p99": { atMost: 500 },
    "slowest search": { atMost: 500 },
    "overview max": { atMost: 500 },
    "webhook stats max": { atMost: 500 },
    "day dropped": { atMost: 1_000 },
  },
  comparisons: [],
  async measure(bench, deliveries) {
    const empty = await costOfDelivery(bench);
    await using stage = await openStage(bench);
    const webhooks = await seedGrownHistory(stage, deliveries);
    const full = await costOfDelivery(bench, stage);
    return [
      { detail: "", unit: "times the processor time", value: full.cpuUs / empty.cpuUs },
      { detail: "WAL", unit: "times", value: full.walBytes / empty.walBytes },
      { detail: "empty database", unit: "us per delivery", value: empty.cpuUs },
      { detail: "grown database", unit: "us per delivery", value: full.cpuUs },
      ...(await timesOfLists(stage, webhooks)),
      ...(await timesOfSearches(stage, webhooks, eventsOf(deliveries))),
      ...(await timesOfCounts(stage)),
      ...(await timeOfDrop(stage)),
    ];
  },
};

/** PostgreSQL's work for a delivery, from publishing to the log. @param grownStage used instead of an empty one */
async function costOfDelivery(
  bench: Bench,
  grownStage?: Stage,
): Promise<{ cpuUs: number; walBytes: number }> {
  await using own = new AsyncDisposableStack();
  const stage = grownStage ?? own.use(await openStage(bench));
  await using receivers = await startReceivers(
    bench,
    Array.from({ length: RECEIVERS }, () => ({ status: 200 })),
  );
  await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
  const webhooks = await seedWebhooks(stage.db, stage.secrets, receivers.urls);
  // Uses an event type of its own, so that published events go only to these webhooks.
  await count(
    stage.db,
    `update webhooks set process = case when id = any(:webhooks::bigint[]) then 1 when process = 1 then 3 else process end`,
    { webhooks },
  );
  await countWebhooks(stage.db);
  // Cleans up after this large update, which is not part of the measurement.
  await stage.db.raw("vacuum (analyze) webhooks, processes");
  if (!grownStage) await warmUp(stage, receivers, webhooks);
  await stage.db.raw("checkpoint");
  const deliver = async (events: number) => {
    await publisher.call("unary", {
      grpcUrl: stage.service.grpcUrl,
      key: stage.adminKey,
      events,
      concurrency: 64,
    });
    await dispatch(stage, {
      what: "delivering",
      requests: events * RECEIVERS,
      receivers,
      webhooks,
      tellsFailures: false,
    });
    await untilRunsClosed(stage);
  };
  await deliver(EVENTS / 4);
  const position = await walPosition(stage.db);
  const before = await databaseTime(stage.db);
  await deliver(EVENTS);
  const deliveries = EVENTS * RECEIVERS;
  return {
    cpuUs: ((await databaseTime(stage.db)) - before) / deliveries,
    walBytes: (await walSince(stage.db, position)) / deliveries,
  };
}

/** Every combination of the page's filters, including those that match nothing. */
async function timesOfLists(stage: Stage, webhooks: readonly bigint[]): Promise<Measurement[]> {
  const client = createClient(DeliveryService, transportTo(stage));
  const states: [string, List][] = [
    ["any state", {}],
    ...(["DELIVERED", "FAILED", "CANCELLED", "PENDING", "RETRYING"] as const).map((name): [string, List] => [
      name.toLowerCase(),
      { states: [DeliveryState[name]] },
    ]),
  ];
  const ofWebhooks: [string, (n: number) => List][] = [
    ["any webhook", () => ({})],
    ["busy webhook", (n) => ({ webhookId: webhooks[n % 10] as bigint })],
    ["quiet webhook", (n) => ({ webhookId: webhooks[100 + n * 997] as bigint })],
    ["webhook without deliveries", () => ({ webhookId: webhooks.at(-1) as bigint })],
  ];
  const types: [string, List][] = [
    ["any type", {}],
    ["a type", { process: 2 as WebhookProcess }],
    ["a type with few", { process: 1 as WebhookProcess }],
  ];
  const times: [string, (n: number) => List][] = [
    ["any time", () => ({})],
    ["an hour", (n) => hourBefore(Date.now() - n * 83 * HOUR_MS)],
    ["a day long ago", (n) => between(Date.now() - (26 - n) * 24 * HOUR_MS, 24 * HOUR_MS)],
    ["an hour to come", () => between(Date.now() + HOUR_MS, HOUR_MS)],
  ];
  const all: number[] = [];
  let slowest = { name: "", ms: 0 };
  let done = 0;
  for (const [state, ofState] of states) {
    for (const [webhook, ofWebhook] of ofWebhooks) {
      for (const [type, ofType] of types) {
        for (const [time, inTime] of times) {
          stage.bench.stopping.throwIfAborted();
          const call = (n: number) =>
            client.listDeliveries({
              pageSize: 50,
              ...ofState,
              ...ofWebhook(n),
              ...ofType,
              ...inTime(n),
            } as List);
          const name = [state, webhook, type, time].join(", ");
          const own = await timesOf({ name, call }, CALLS, 1);
          all.push(...own);
          const ms = own.at(-1) as number;
          if (ms > slowest.ms) slowest = { name, ms };
          stage.bench.show.count(
            "combinations of filters",
            ++done,
            states.length * ofWebhooks.length * types.length * times.length,
          );
        }
      }
    }
  }
  all.sort((one, other) => one - other);
  return [
    { detail: "lists p50", unit: "ms", value: percentile(all, 0.5) },
    { detail: "lists p99", unit: "ms", value: percentile(all, 0.99) },
    { detail: "slowest filter", unit: "ms", value: slowest.ms, note: slowest.name },
  ];
}

/** Everything that can be searched for, with and without other filters. */
async function timesOfSearches(
  stage: Stage,
  webhooks: readonly bigint[],
  events: number,
): Promise<Measurement[]> {
  const client = createClient(DeliveryService, transportTo(stage));
  /** Events from the newest to the oldest, odd ones. */
  const event = (n: number) => Math.max(1, Math.floor((events * (CALLS - n)) / (CALLS + 1)) | 1);
  const sample = await rows<{ id: string; event_id: string }>(
    stage.db,
    "select id, event_id from deliveries where webhook_id = :webhook::bigint order by id desc limit :calls::int",
    { webhook: webhooks[0], calls: CALLS + 1 },
  );
  const texts: [string, (n: number) => string][] = [
    ["order number", (n) => orderNumber(event(n))],
    ["tracking number", (n) => trackingNumber(event(n))],
    ["value of no event", (n) => orderNumber(-event(n))],
    ["user of every other event", () => BUSY_USER],
    ["user", (n) => userOf(event(n))],
    ["idempotency key", (n) => `${event(n)}`],
    ["event id", (n) => sample[n]?.event_id ?? ""],
    ["delivery id", (n) => sample[n]?.id ?? ""],
    ["webhook id", (n) => String(webhooks[n])],
    ["host", (n) => `shop-${event(n) % HOSTS}.example`],
    ["host of no webhook", (n) => `shop-${event(n)}.test`],
  ];
  const filters: [string, List][] = [
    ["any state", {}],
    ["failed", { states: [DeliveryState.FAILED] }],
    ["cancelled, an hour", { states: [DeliveryState.CANCELLED], ...hourBefore(Date.now() - 83 * HOUR_MS) }],
    ["a webhook", { webhookId: webhooks[0] as bigint }],
  ];
  const all: number[] = [];
  let slowest = { name: "", ms: 0 };
  for (const [text, textOf] of texts) {
    for (const [filter, list] of filters) {
      stage.bench.stopping.throwIfAborted();
      const name = `${text}, ${filter}`;
      let found = 0;
      const call = async (n: number) => {
        const page = await client.listDeliveries({ pageSize: 50, ...list, search: textOf(n) } as List);
        found += page.deliveries.length;
      };
      const own = await timesOf({ name, call }, CALLS, 1);
      if (found > 0 === text.includes(" of no ") && filter === "any state") {
        throw new Error(`a search by ${name} found ${found} deliveries`);
      }
      all.push(...own);
      const ms = own.at(-1) as number;
      if (ms > slowest.ms) slowest = { name, ms };
    }
  }
  all.sort((one, other) => one - other);
  return [
    { detail: "search p50", unit: "ms", value: percentile(all, 0.5) },
    { detail: "search p99", unit: "ms", value: percentile(all, 0.99) },
    { detail: "slowest search", unit: "ms", value: slowest.ms, note: slowest.name },
  ];
}

const between = (from: number, ms: number): List => ({
  from: timestampFromMs(from),
  to: timestampFromMs(from + ms),
});
const hourBefore = (to: number): List => between(to - HOUR_MS, HOUR_MS);

async function timesOfCounts(stage: Stage): Promise<Measurement[]> {
  const client = createClient(StatsService, transportTo(stage));
  const overview = await timesOf({ name: "overview", call: () => client.getOverview({}) }, CALLS, 0);
  const webhookStats = await timesOf(
    { name: "webhook stats", call: () => client.listWebhookStats({}) },
    CALLS,
    0,
  );
  return [
    { detail: "overview max", unit: "ms", value: percentile(overview, 1) },
    { detail: "webhook stats max", unit: "ms", value: percentile(webhookStats, 1) },
  ];
}

/** Runs the retention with a week less, so that the oldest day expires. */
async function timeOfDrop({ db }: Stage): Promise<Measurement[]> {
  for (;;) {
    const started = performance.now();
    const step = await retentionStep(db, db, DAYS - 8);
    if (step.partitions.length > 0) {
      const days = new Set(step.partitions.map((name) => name.split("_")[1])).size;
      const note = `${step.partitions.length} partitions of ${days} days`;
      return [{ detail: "day dropped", unit: "ms", value: (performance.now() - started) / days, note }];
    }
    if (step.expired + step.keys + step.runs + step.payloads === 0)
      throw new Error("no day could be dropped");
  }
}
