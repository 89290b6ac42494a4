import { Agent } from "node:http";
import { setTimeout as wait } from "node:timers/promises";
import type { DescMethod } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { ApiKeyService } from "../../gen/webhook/v1/api_key_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { SERVICES } from "../../src/app/services.ts";
import { rows, count as run } from "../../src/lib/pg/database.ts";
import { costlyJson, type KnownIds } from "../../test/support/costly-requests.ts";
import type { Bench } from "../parts/bench.ts";
import { startChild } from "../parts/child.ts";
import { statusOf } from "../parts/http-status.ts";
import { memoryOfFamily } from "../parts/processes.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Measurement, Scenario } from "../parts/scenario.ts";
import { insertPending, seedWebhooks } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { percentile, transportTo } from "../parts/timed-calls.ts";
import type { Attack, AttackerMethods } from "../processes/attacker.ts";
import type { PublisherMethods } from "../processes/publisher.ts";

/** The webhooks of the attacking app, each with as many deliveries. */
const WEBHOOKS = 500;
const DELIVERIES_EACH = 200;
/** Events with large payloads. */
const LARGE = { events: 540, bytes: 200_000 };
const CONCURRENCY = 40;
const KEYS = 6;
/** The events per second that are published for another app meanwhile, and the calls of it. */
const PUBLISHED_PER_SECOND = 50;
const CALL_INTERVAL_MS = 50;
const REQUESTS = 20;
/** The time without an attack before the first and after the last, in seconds. */
const QUIET_S = 20;
/** The time after the last attack until everything has to be as before, in seconds. */
const RECOVERY_S = 5;
const MEBIBYTE = 1_048_576;

/** How an attack by the keys of an app affects the calls and deliveries of another one. */
export const attack: Scenario = {
  name: "attack",
  what: `every method with the arguments that cost most, ${CONCURRENCY} calls at a time by a reading, a writing and ${KEYS} keys of an app (count: seconds for each): another app's calls, publishing and deliveries`,
  count: { full: 5, small: 1 },
  targets: {
    "GetWebhook p99": { atMost: 250 },
    "readyz max": { atMost: 250 },
    errors: { atMost: 0 },
    publishing: { atLeast: 0.8 },
    deliveries: { atLeast: 0.9 },
    memory: { atMost: 200 },
    "GetWebhook p99 afterwards": { atMost: 250 },
  },
  comparisons: [],
  async measure(bench, seconds) {
    await using receivers = await startReceivers(bench, [{ status: 200 }]);
    await using stage = await openStage(bench, { DISPATCH_ON_PUBLISH: "true" }, true);
    const world = await buildWorld(stage, `${receivers.urls[0]}/hooks`);
    await using attacker = startChild<AttackerMethods>(bench, "attacker.ts");
    await using publisher = startChild<PublisherMethods>(bench, "publisher.ts");
    const methods = SERVICES.flatMap((service) => service.methods);
    const targets: Target[] = [
      ...methods.map((method) => ({
        name: method.name,
        httpMethod: "POST" as const,
        path: `/${method.parent.typeName}/${method.name}`,
        streams: method.methodKind !== "unary",
        requests: () => requestsOf(method, world.ids),
      })),
      { ...REST_LIST, requests: () => [""] },
    ];
    const phases = targets.flatMap((target) =>
      [[world.reader], world.writers.slice(0, 1), world.writers].map((keys) => ({ target, keys })),
    );

    const alone = await watchOther(bench, stage, world, QUIET_S);
    const arrivedAlone = await publishMeanwhile(stage, publisher, receivers, QUIET_S, 1);
    // After ordinary calls: the service has loaded what it needs for them.
    const memoryBefore = memoryOfFamily(stage.service.pid);
    const total = phases.length * seconds;
    const published = publishMeanwhile(
      stage,
      publisher,
      receivers,
      total,
      1 + QUIET_S * PUBLISHED_PER_SECOND,
    );
    const seen: (Seen & { name: string; memory: number })[] = [];
    for (const [n, { target, keys }] of phases.entries()) {
      const { name, requests, ...call } = target;
      bench.stopping.throwIfAborted();
      bench.show.count(call.path, n, phases.length);
      // Beforehand, because this process, which would be busy with 30 MB of requests, measures the times of calls.
      await attacker.call("load", requests());
      const [watched] = await Promise.all([
        watchOther(bench, stage, world, seconds),
        attacker.call("attack", {
          ...call,
          url: stage.service.url,
          keys,
          concurrency: CONCURRENCY,
          seconds,
        }),
      ]);
      seen.push({
        ...watched,
        name: `${name} by ${keys === world.writers ? `${keys.length} keys` : keys[0] === world.reader ? "a reading key" : "a writing key"}`,
        memory: memoryOfFamily(stage.service.pid) - memoryBefore,
      });
    }
    await wait(1_000 * RECOVERY_S, undefined, { signal: bench.stopping });
    const afterwards = await watchOther(bench, stage, world, QUIET_S);
    const beside = await published;

    const worst = worstOf(seen, ({ calls }) => percentile(calls, 0.99));
    const slowest = worstOf(seen, ({ ready }) => ready.at(-1) ?? 0);
    const failing = worstOf(seen, ({ errors }) => errors);
    const largest = worstOf(seen, ({ memory }) => memory);
    return [
      { detail: "GetWebhook p99", unit: "ms at most", value: worst.value, note: worst.name },
      { detail: "GetWebhook p99 alone", unit: "ms", value: percentile(alone.calls, 0.99) },
      { detail: "GetWebhook p99 afterwards", unit: "ms", value: percentile(afterwards.calls, 0.99) },
      { detail: "readyz max", unit: "ms", value: slowest.value, note: slowest.name },
      {
        detail: "errors",
        unit: "calls",
        value: seen.reduce((sum, { errors }) => sum + errors, 0) + afterwards.errors,
        ...(failing.value > 0 ? { note: failing.name } : {}),
      },
      { detail: "publishing", unit: "of alone", value: beside.published / arrivedAlone.published },
      { detail: "deliveries", unit: "of alone", value: beside.delivered / arrivedAlone.delivered },
      { detail: "memory", unit: "MiB more", value: largest.value / MEBIBYTE, note: largest.name },
    ] satisfies Measurement[];
  },
};

/** What is attacked. */
interface Target extends Pick<Attack, "httpMethod" | "path" | "streams"> {
  /** The name in the results. */
  name: string;
  /** Makes the requests as JSON. */
  requests(): string[];
}

/** The only operation of REST that reads much, and returns all webhooks. */
const REST_LIST = {
  name: "REST's list",
  httpMethod: "GET",
  path: "/api/webhook/list",
  streams: false,
} as const;

interface World {
  /** The keys of the attacking app. */
  reader: string;
  writers: string[];
  ids: KnownIds;
  /** The key of the other app, and its webhook. */
  other: { key: string; webhookId: bigint };
}

async function buildWorld(stage: Stage, receiverUrl: string): Promise<World> {
  const { db, secrets } = stage;
  const keys = createClient(ApiKeyService, transportTo(stage));
  const makeApp = async (name: string) => {
    const { installedApp } = await keys.createInstalledApp({ name });
    return installedApp?.id as string;
  };
  const makeKey = async (installedApplicationId: string, permissions: Permission[]) => {
    const { secret, apiKey } = await keys.createApiKey({ name: "key", permissions, installedApplicationId });
    return { secret, id: apiKey?.id as string };
  };
  const { READ_ADMINISTRATIVE_DATA: READ, WRITE_ADMINISTRATIVE_DATA: WRITE } = Permission;
  const [app, otherApp] = [await makeApp("attacker"), await makeApp("other")];
  const reader = await makeKey(app, [READ]);
  const writers = [];
  for (let n = 0; n < KEYS; n += 1)
    writers.push(await makeKey(app, [READ, WRITE, Permission.PUBLISH_EVENTS, Permission.MANAGE_API_KEYS]));
  const webhookIds = await seedWebhooks(
    db,
    secrets,
    Array.from({ length: WEBHOOKS }, (_, n) => `https://receiver.example/${n}`),
  );
  await run(
    db,
    `update webhooks set api_key_id = :key::uuid, installed_app_id = :app::uuid, paused = now(), process = 2
      where id = any(:ids::bigint[])`,
    { key: writers[0]?.id, app, ids: webhookIds.map(String) },
  );
  await insertPending(stage, { events: DELIVERIES_EACH, webhooks: webhookIds });
  const [large] = webhookIds;
  await insertPending(stage, { events: LARGE.events, webhooks: [large as bigint] });
  await run(
    db,
    `update events set payload = '{"Text":"' || repeat('1', :bytes::int) || '"}' where id in (
      select event_id from queue where webhook_id = :large::bigint order by id desc limit :events::int)`,
    { bytes: LARGE.bytes, events: LARGE.events, large },
  );
  // Of the webhooks' type, so that trials of filters find events.
  await run(db, "update events set process = 2");
  const [otherId] = await seedWebhooks(db, secrets, [receiverUrl]);
  const other = await makeKey(otherApp, [READ]);
  await run(
    db,
    "update webhooks set api_key_id = :key::uuid, installed_app_id = :app::uuid where id = :id::bigint",
    {
      key: other.id,
      app: otherApp,
      id: otherId,
    },
  );
  const found = await rows<{ id: string; eventId: string }>(
    db,
    `select id, event_id as "eventId" from queue order by id desc limit 1000`,
  );
  await db.raw("vacuum (analyze) events, queue, webhooks");
  return {
    reader: reader.secret,
    writers: writers.map(({ secret }) => secret),
    ids: {
      webhookIds,
      deliveryIds: found.map(({ id }) => id),
      eventIds: found.map(({ eventId }) => eventId),
    },
    other: { key: other.secret, webhookId: otherId as bigint },
  };
}

function requestsOf(method: DescMethod, ids: KnownIds): string[] {
  return Array.from({ length: REQUESTS }, (_, nth) => costlyJson(method, ids, nth));
}

/** What another app and a load balancer saw. */
interface Seen {
  /** The times of its calls and of `/readyz`, in milliseconds, ascending. */
  calls: number[];
  ready: number[];
  /** The number of answers with another status than 200. */
  errors: number;
}

async function watchOther(
  bench: Bench,
  { service }: Stage,
  { other }: World,
  seconds: number,
): Promise<Seen> {
  const agent = new Agent({ keepAlive: true });
  const seen: Seen = { calls: [], ready: [], errors: 0 };
  const timed = async (times: number[], path: string, body?: string) => {
    const began = performance.now();
    const status = await statusOf(new URL(path, service.url), agent, other.key, body);
    times.push(performance.now() - began);
    if (status !== 200) seen.errors += 1;
  };
  const asked: Promise<void>[] = [];
  const body = JSON.stringify({ webhookId: String(other.webhookId) });
  for (const end = Date.now() + 1_000 * seconds; Date.now() < end; ) {
    asked.push(
      timed(seen.calls, "/webhook.v1.WebhookService/GetWebhook", body),
      timed(seen.ready, "/readyz"),
    );
    await wait(CALL_INTERVAL_MS, undefined, { signal: bench.stopping });
  }
  await Promise.all(asked);
  agent.destroy();
  for (const times of [seen.calls, seen.ready]) times.sort((one, another) => one - another);
  return seen;
}

/** Publishes events for the other app. Returns how many per second were answered, and how many deliveries arrived. */
async function publishMeanwhile(
  { service, adminKey }: Stage,
  publisher: {
    call: (name: "paced", argument: Parameters<PublisherMethods["paced"]>[0]) => Promise<Map<number, number>>;
  },
  receivers: { count: () => Promise<number> },
  seconds: number,
  firstOrder: number,
): Promise<{ published: number; delivered: number }> {
  const before = await receivers.count();
  const began = Date.now();
  const answered = publisher.call("paced", {
    grpcUrl: service.grpcUrl,
    key: adminKey,
    perSecond: PUBLISHED_PER_SECOND,
    seconds,
    firstOrder,
    timeOf: "response",
  });
  await wait(1_000 * seconds);
  const delivered = (await receivers.count()) - before;
  const end = began + 1_000 * seconds;
  const published = [...(await answered).values()].filter((at) => at <= end).length;
  return { published: published / seconds, delivered: delivered / seconds };
}

function worstOf<T extends { name: string }>(all: readonly T[], read: (each: T) => number) {
  const values = all.map((each) => ({ name: each.name, value: read(each) }));
  return values.reduce((worst, each) => (each.value > worst.value ? each : worst));
}
