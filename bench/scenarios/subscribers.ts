import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { count as run } from "../../src/lib/pg/database.ts";
import { dispatch, untilRunsClosed } from "../parts/dispatching.ts";
import { PROCESS, publishRequest } from "../parts/payload.ts";
import { type Receivers, startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { countWebhooks, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { percentile } from "../parts/timed-calls.ts";

const HOSTS = 1_000;
/** The number of events for all webhooks, and their interval. */
const WIDE_EVENTS = 10;
const WIDE_EVERY_MS = 1_000;
/** The rate of events for one webhook published by others meanwhile, per second. */
const OTHERS_PER_SECOND = 50;
const OTHERS = (OTHERS_PER_SECOND * WIDE_EVENTS * WIDE_EVERY_MS) / 1_000;
const WARM_UP_OTHERS = 200;
/** An event type with one registered webhook. */
const OTHER_PROCESS = 3;
/** The deliveries sent while events are published, per second, below which publishing was measured beside nothing. */
const MIN_SENT_PER_SECOND = 1_000;

/** An event for very many webhooks must cost its publisher, and others, no more than other events. */
export const subscribers: Scenario = {
  name: "subscribers",
  what: "one event for 100,000 webhooks; then the drain of 10 such events, published in 10 s beside others: 99th percentile of publishing",
  count: { full: 100_000, small: 10_000 },
  targets: {
    "of fanout": { atLeast: 0.5 },
    "publish p99": { atMost: 100 },
    "others p99": { atMost: 100 },
  },
  comparisons: [{ detail: "of fanout", unit: "ratio", with: "fanout", value: (own, fanout) => own / fanout }],
  async measure(bench, count) {
    await using receivers = await startReceivers(
      bench,
      Array.from({ length: HOSTS + 1 }, () => ({ status: 200 })),
    );
    await using stage = await openStage(bench);
    const urls = Array.from({ length: count }, (_, n) => `${receivers.urls[n % HOSTS]}/hooks/${n}`);
    await seedWebhooks(stage.db, stage.secrets, urls);
    const [other] = await seedWebhooks(stage.db, stage.secrets, [`${receivers.urls[HOSTS]}/other`]);
    await run(stage.db, "update webhooks set process = :process::int where id = :other::bigint", {
      process: OTHER_PROCESS,
      other,
    });
    await countWebhooks(stage.db);
    const wide = publisherOf(stage, PROCESS);
    const others = publisherOf(stage, OTHER_PROCESS);
    for (let n = 0; n < WARM_UP_OTHERS; n += 1) await others();
    const drain = (what: string, events: number) =>
      dispatch(stage, { what, requests: events * count, receivers, hosts: HOSTS });

    const alone = await timesOf(1, 0, wide);
    const aloneSeconds = await drain("delivering one event", 1);
    await untilRunsClosed(stage);

    // The first event is published before the dispatch, which would end at once if nothing were pending.
    const first = await timesOf(1, 0, wide);
    const [seconds, meanwhile] = await Promise.all([
      drain(`delivering ${WIDE_EVENTS} events`, WIDE_EVENTS),
      publishMeanwhile(receivers, wide, others),
    ]);
    const wideTimes = sorted([...alone, ...first, ...meanwhile.wideTimes]);
    return [
      { detail: "", unit: "deliveries/s", value: (WIDE_EVENTS * count) / seconds },
      { detail: "one event", unit: "deliveries/s", value: count / aloneSeconds },
      { detail: "publish p99", unit: "ms", value: percentile(wideTimes, 0.99) },
      { detail: "others p99", unit: "ms", value: percentile(sorted(meanwhile.otherTimes), 0.99) },
      { detail: "sent meanwhile", unit: "deliveries/s", value: meanwhile.sentPerSecond },
    ];
  },
};

/**
 * Publishes the other events for all webhooks, and events of others, while the first one is fanned out and delivered.
 *
 * @throws Error if a call fails, or if few of the deliveries were fanned out and sent meanwhile
 */
async function publishMeanwhile(receivers: Receivers, wide: Publish, others: Publish) {
  const began = performance.now();
  const before = await receivers.count(HOSTS);
  const [wideTimes, otherTimes] = await Promise.all([
    timesOf(WIDE_EVENTS - 1, WIDE_EVERY_MS, wide),
    timesOf(OTHERS, 1_000 / OTHERS_PER_SECOND, others),
  ]);
  const sent = (await receivers.count(HOSTS)) - before;
  const sentPerSecond = sent / ((performance.now() - began) / 1_000);
  if (sentPerSecond < MIN_SENT_PER_SECOND)
    throw new Error(`only ${sent} deliveries were sent while events were published`);
  return { wideTimes, otherTimes, sentPerSecond };
}

type Publish = () => Promise<unknown>;

function publisherOf({ service, adminKey }: Stage, process: number): Publish {
  const transport = createGrpcTransport({
    baseUrl: service.grpcUrl,
    interceptors: [
      (next) => (request) => {
        request.header.set("X-Service-Key", adminKey);
        return next(request);
      },
    ],
  });
  const client = createClient(EventService, transport);
  const stock = { productId: 1n, sku: "A", location: "Oslo", level: 1n, changedAt: { seconds: 1n } };
  return () =>
    process === PROCESS
      ? client.publishEvent(publishRequest(1, randomUUID()))
      : client.publishEvent({
          idempotencyKey: randomUUID(),
          userId: "tenant-1",
          data: { case: "stockLevelChanged", value: stock },
        });
}

/** The durations of calls started at even intervals, in milliseconds. Throws if one fails. */
async function timesOf(calls: number, everyMs: number, call: Publish): Promise<number[]> {
  const began = performance.now();
  const times = Array.from({ length: calls }, async (_, n) => {
    await wait(Math.max(0, began + n * everyMs - performance.now()));
    const asked = performance.now();
    await call();
    return performance.now() - asked;
  });
  return Promise.all(times);
}

const sorted = (times: readonly number[]) => times.toSorted((one, other) => one - other);
