import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { count as run } from "../../src/db/database.ts";
import { dispatch } from "../parts/dispatching.ts";
import { PROCESS, publishRequest } from "../parts/payload.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { countWebhooks, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";

const HOSTS = 1_000;
/** The number of events for all webhooks, and their interval. */
const WIDE_EVENTS = 10;
const WIDE_EVERY_MS = 1_000;
/** The rate of events for one webhook published by others meanwhile, per second. */
const OTHERS_PER_SECOND = 50;
/** An event type with one registered webhook. */
const OTHER_PROCESS = 3;

/** An event for very many webhooks must cost its publisher, and others, no more than other events. */
export const subscribers: Scenario = {
  name: "subscribers",
  what: "publish of events for 100,000 webhooks, beside others: 99th percentile; then one drained",
  count: { full: 100_000, small: 10_000 },
  targets: { "publish p99": { atMost: 100 }, "others p99": { atMost: 100 } },
  comparisons: [],
  async measure(bench, count) {
    await using receivers = await startReceivers(
      bench,
      Array.from({ length: HOSTS }, () => ({ status: 200 })),
    );
    await using stage = await openStage(bench);
    const urls = Array.from({ length: count }, (_, n) => `${receivers.urls[n % HOSTS]}/hooks/${n}`);
    const webhooks = await seedWebhooks(stage.db, stage.secrets, urls);
    const [other] = await seedWebhooks(stage.db, stage.secrets, ["https://localhost/other"]);
    await run(stage.db, "update webhooks set process = :process::int where id = :other::bigint", {
      process: OTHER_PROCESS,
      other,
    });
    await countWebhooks(stage.db);
    const wide = publisherOf(stage, PROCESS);
    const others = publisherOf(stage, OTHER_PROCESS);
    for (let n = 0; n < 200; n += 1) await others();
    const [first] = await timesOf(1, 0, wide);
    const seconds = await dispatch(stage, { what: "delivering", requests: count, receivers, webhooks });
    const [wideTimes, otherTimes] = await Promise.all([
      timesOf(WIDE_EVENTS, WIDE_EVERY_MS, wide),
      timesOf((OTHERS_PER_SECOND * WIDE_EVENTS * WIDE_EVERY_MS) / 1_000, 1_000 / OTHERS_PER_SECOND, others),
    ]);
    return [
      { detail: "", unit: "deliveries/s", value: count / seconds },
      { detail: "first publish", unit: "ms", value: first as number },
      { detail: "publish p99", unit: "ms", value: percentile(wideTimes, 0.99) },
      { detail: "others p99", unit: "ms", value: percentile(otherTimes, 0.99) },
    ];
  },
};

function publisherOf({ service, adminKey }: Stage, process: number): () => Promise<unknown> {
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
async function timesOf(calls: number, everyMs: number, call: () => Promise<unknown>): Promise<number[]> {
  const began = performance.now();
  const times = Array.from({ length: calls }, async (_, n) => {
    await wait(Math.max(0, began + n * everyMs - performance.now()));
    const asked = performance.now();
    await call();
    return performance.now() - asked;
  });
  return Promise.all(times);
}

function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((one, other) => one - other);
  return sorted[Math.max(0, Math.ceil(sorted.length * part) - 1)] as number;
}
