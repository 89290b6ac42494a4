import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { StatsService } from "../../../../gen/webhook/v1/stats_pb.ts";
import { sharedReading } from "../../../../src/api/services/stats/shared-reading.ts";
import type { DeliveryStateName } from "../../../../src/db/deliveries/deliveries.ts";
import { CHANGE } from "../../../../src/db/deliveries/rollup-deltas.ts";
import { foldDeltas, LATENCY_BOUNDS_MS } from "../../../../src/db/deliveries/rollups.ts";
import { readHistory, readOverview, webhookStats } from "../../../../src/db/deliveries/stats.ts";
import { failure } from "../../../support/failure.ts";
import { storeDeliveries } from "../../../support/stored-deliveries.ts";
import { ONLY, startTestApi, useApi } from "../../../support/test-api.ts";

const HOUR = 3_600_000;
const api = await useApi();
const stats = api.client(StatsService);
const webhookId = await api.register();
const { db } = api.context;
const store = (state: DeliveryStateName, count: number) =>
  storeDeliveries(
    api.context.db,
    Array.from({ length: count }, () => ({ webhookId, state })),
  );

await store("pending", 3);
await store("delivering", 1);
await store("retrying", 2);
const { retrying, delivered, failed, cancelled } = CHANGE;
await happened(25, [delivered, 90], [failed, 10]);
await happened(5.5, [delivered, 5], [failed, 1], [retrying, 3]);
while ((await foldDeltas(db)) > 0);
// Counts that are not folded yet are added to those that are.
await happened(5.4, [delivered, 1]);
await happened(0.01, [delivered, 1], [retrying, 2], [cancelled, 1]);
const run = (hoursAgo: number, columns: Record<string, unknown>) => ({
  workflow_id: "dispatch-pending-deliveries",
  first_run_id: randomUUID(),
  started: new Date(Date.now() - hoursAgo * HOUR),
  lease_until: new Date(),
  ...columns,
});
const closed = new Date();
await db("runs").insert([
  run(25, { sent: 100, delivered: 90, failed: 10, closed }),
  run(5.5, { sent: 9, delivered: 5, failed: 1, closed }),
  run(5.4, { sent: 1, delivered: 1, closed }),
  run(0.01, { sent: 3, delivered: 1 }),
]);

/** Stores what attempts of 10 ms changed, as recording their results does; a cancelled delivery has none. */
async function happened(hoursAgo: number, ...outcomes: [change: number, count: number][]): Promise<void> {
  const changes = outcomes.flatMap(([change, count]) => Array<number>(count).fill(change));
  await api.context.db("rollup_deltas").insert({
    minute: new Date(Math.floor((Date.now() - hoursAgo * HOUR) / 60_000) * 60_000),
    webhook_ids: changes.map(() => String(webhookId)),
    changes,
    durations_ms: changes.map((change) => (change === CHANGE.cancelled ? -1 : 10)),
  });
}

const COUNTED = {
  pending: 3n,
  delivering: 1n,
  retrying: 2n,
  failed: 11n,
  cancelled: 1n,
  attemptsLastDay: 13n,
  deliveredLastDay: 7n,
  failedLastDay: 1n,
  attemptsPreviousDay: 100n,
  deliveredPreviousDay: 90n,
  failedPreviousDay: 10n,
  failedAttemptsPreviousDay: 10n,
};

test("the overview counts open deliveries by state, the log's by outcome, and what happened in the last day", async () => {
  const { overview } = await stats.getOverview({});
  expect(overview).toMatchObject(COUNTED);
});

test("the history has the last day in equal spans, those in which nothing happened too", async () => {
  const { buckets } = await stats.getHistory({});
  expect(buckets).toHaveLength(24);
  const starts = buckets.map(({ start }) => (start ? timestampDate(start).getTime() : 0));
  for (const [index, start] of starts.entries()) {
    if (index > 0) expect(start - (starts[index - 1] as number)).toBe(HOUR);
  }
  expect(Math.abs((starts[0] as number) + 24 * HOUR - Date.now())).toBeLessThan(60_000);
  const some = buckets.map(({ attempts, delivered, failed }) => [attempts, delivered, failed]);
  expect(some[18]).toEqual([10n, 6n, 1n]);
  expect(some[23]).toEqual([3n, 1n, 0n]);
  expect(some.filter(([attempts]) => attempts === 0n)).toHaveLength(22);
  expect((await stats.getHistory({ buckets: 288 })).buckets).toHaveLength(288);
});

test("each webhook's success and speed are counted since the full hour 24 hours ago", async () => {
  const tried = [10, 10, 10, 10, 10, 10, 10, 10, 10, 70].map((durationMs) => ({ status: 500, durationMs }));
  const other = await api.register();
  await storeDeliveries(api.context.db, [
    { webhookId: other, state: "failed", tried },
    { webhookId: other, state: "failed", reason: "interrupted" },
  ]);
  const { webhooks, since } = await stats.listWebhookStats({});
  expect(webhooks).toEqual([
    expect.objectContaining({
      webhookId,
      delivered: 7n,
      failed: 1n,
      attempts: 13n,
      averageMs: 10,
      longestMs: 10,
    }),
    expect.objectContaining({
      webhookId: other,
      delivered: 0n,
      failed: 2n,
      attempts: 10n,
      averageMs: 16,
      longestMs: 70,
    }),
  ]);
  const from = since ? timestampDate(since).getTime() : 0;
  expect(from % HOUR).toBe(0);
  expect(Date.now() - from - 24 * HOUR).toBeGreaterThanOrEqual(0);
  expect(Date.now() - from - 24 * HOUR).toBeLessThan(HOUR + 60_000);
});

test("counts are the same whether they are folded or not, and are read while they are folded", async () => {
  const { db } = api.context;
  // Health is judged when counts are folded.
  const health = { healthyWebhooks: 0n, degradedWebhooks: 0n, failingWebhooks: 0n };
  const read = async () => [
    { ...(await readOverview(db, "everything")), ...health },
    (await readHistory(db, "everything", 24, now)).map(({ attempts, delivered, failed }) => [
      attempts,
      delivered,
      failed,
    ]),
    (await webhookStats(db, [webhookId])).webhooks,
  ];
  for (let minute = 0; minute < 600; minute += 1) await happened(minute / 60, [CHANGE.delivered, 1]);
  const now = new Date();
  const before = await read();
  expect(Number((await db("rollup_deltas").count().first())?.count)).toBeGreaterThan(600);
  for (let folded = 1; folded > 0; ) {
    const [step, meanwhile] = await Promise.all([foldDeltas(db), read()]);
    expect(meanwhile).toEqual(before);
    folded = step;
  }
  expect(await db("rollup_deltas")).toEqual([]);
  expect(await read()).toEqual(before);
});

test("a webhook's last hour, day and week have counts and latencies, and no other webhook's", async () => {
  const { db } = api.context;
  const own = await api.register();
  const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000);
  const deltas = [
    { at: minutesAgo(10), durations: [3, 3, 3, 90] },
    { at: minutesAgo(5 * 60), durations: [3, 900, 900, 900] },
    { at: minutesAgo(3 * 24 * 60), durations: [14_000] },
    { at: minutesAgo(9 * 24 * 60), durations: [1] },
  ];
  await db("rollup_deltas").insert(
    deltas.map(({ at, durations }) => ({
      minute: at,
      webhook_ids: durations.map(() => String(own)),
      changes: durations.map(() => CHANGE.delivered),
      durations_ms: durations,
    })),
  );
  while ((await foldDeltas(db)) > 0);
  const { periods } = await stats.getWebhookStats({ webhookId: own });
  expect(
    periods.map(({ hours, attempts, delivered, failed }) => [hours, attempts, delivered, failed]),
  ).toEqual([
    [1, 4n, 4n, 0n],
    [24, 8n, 8n, 0n],
    [168, 9n, 9n, 0n],
  ]);
  // Upper bounds of the classes: 3 ms is below 4, 90 below 91, 900 below 1,024, 14,000 below 16,384.
  const latencies = periods.map(({ latencyP50Ms, latencyP95Ms }) => [latencyP50Ms, latencyP95Ms]);
  expect(latencies).toEqual([
    [4, 91],
    [4, 1_024],
    [91, 16_384],
  ]);
  const quiet = await stats.getWebhookStats({ webhookId: await api.register() });
  expect(quiet.periods.map(({ attempts, latencyP50Ms }) => [attempts, latencyP50Ms])).toEqual(
    Array(3).fill([0n, undefined]),
  );
  expect((await failure(stats.getWebhookStats({ webhookId: 999_999n })))?.code).toBe(Code.NotFound);
});

test("the attempts of webhooks and their latency are read over an hour, a day and a week, up to now", async () => {
  const { db } = api.context;
  const [own, quiet] = [await api.register(), await api.register()];
  const minute = 60_000;
  /** The middle of an interval of two minutes, of an hour and of six hours that is over. */
  const [recent, today, lately] = [10 * minute, 5 * HOUR, 3 * 24 * HOUR].map((ago) => Date.now() - ago) as [
    number,
    number,
    number,
  ];
  const { delivered, retrying } = CHANGE;
  const tried = (at: number, changes: number[], durations: number[]) => ({
    minute: new Date(Math.floor(at / minute) * minute),
    webhook_ids: changes.map(() => String(own)),
    changes,
    durations_ms: durations,
  });
  await db("rollup_deltas").insert([
    tried(recent, [delivered, delivered, retrying], [3, 3, 90]),
    tried(today, [delivered, retrying], [3, 900]),
    tried(lately, [delivered], [14_000]),
  ]);
  while ((await foldDeltas(db)) > 0);
  const read = async (hours: number) => {
    const { webhooks, intervalSeconds } = await stats.listWebhookHistory({
      webhookIds: [quiet, own, 999_999n, own],
      hours,
    });
    expect(webhooks.map((each) => each.webhookId)).toEqual([quiet, own]);
    const [none, some] = webhooks.map(({ intervals }) => intervals);
    expect(none?.every(({ attempts, latencyP50Ms }) => attempts === 0n && latencyP50Ms === undefined)).toBe(
      true,
    );
    const starts = some?.map(({ start }) => (start ? timestampDate(start).getTime() : 0)) ?? [];
    for (const [index, start] of starts.entries()) {
      expect(start % (intervalSeconds * 1_000)).toBe(0);
      if (index > 0) expect(start - (starts[index - 1] as number)).toBe(intervalSeconds * 1_000);
    }
    expect(starts.at(-1)).toBeGreaterThan(Date.now() - intervalSeconds * 1_000 - minute);
    const at = (time: number) => {
      const interval = some?.[starts.findLastIndex((start) => start <= time)];
      return [interval?.attempts, interval?.failedAttempts, interval?.latencyP50Ms, interval?.latencyP95Ms];
    };
    const { attempts, latencyP50Ms, latencyP95Ms } = webhooks[1] ?? {};
    expect(some?.reduce((sum, each) => sum + each.attempts, 0n)).toBe(attempts);
    expect((latencyP95Ms ?? 0) >= (latencyP50Ms ?? 1)).toBe(true);
    return { count: starts.length, intervalSeconds, attempts, at };
  };
  const floor = (time: number) => Math.floor(time / minute) * minute;
  const hour = await read(1);
  expect([hour.count, hour.intervalSeconds, hour.attempts]).toEqual([30, 120, 3n]);
  expect(hour.at(floor(recent))).toEqual([3n, 1n, 4, 91]);
  const day = await read(0);
  expect([day.count, day.intervalSeconds, day.attempts]).toEqual([24, 3_600, 5n]);
  expect(day.at(floor(today))).toEqual([2n, 1n, 4, 1_024]);
  const week = await read(168);
  expect([week.count, week.intervalSeconds, week.attempts]).toEqual([28, 21_600, 6n]);
  expect(week.at(floor(lately))).toEqual([1n, 0n, 16_384, 16_384]);
});

test("attempts of one latency class in a week may exceed 32 bits", async () => {
  const own = await api.register();
  const attempts = 1_200_000_000;
  // Hours of one interval of six hours, in UTC, before the current one.
  const interval = Math.floor(Date.now() / (6 * HOUR)) * 6 * HOUR - 24 * HOUR;
  await api.context.db("rollup_hours").insert(
    [interval, interval + HOUR].map((start) => ({
      webhook_id: String(own),
      start: new Date(start),
      attempts,
      failed_attempts: 0,
      delivered: attempts,
      failed: 0,
      cancelled: 0,
      filtered: 0,
      total_ms: String(attempts * 3),
      longest_ms: 3,
      latency: [0, 0, attempts, ...Array<number>(LATENCY_BOUNDS_MS.length - 2).fill(0)],
    })),
  );
  const { periods } = await stats.getWebhookStats({ webhookId: own });
  expect(periods.at(-1)).toMatchObject({ hours: 168, attempts: 2_400_000_000n, latencyP50Ms: 4 });
  const { webhooks } = await stats.listWebhookHistory({ webhookIds: [own], hours: 168 });
  expect(webhooks[0]).toMatchObject({ attempts: 2_400_000_000n, latencyP50Ms: 4 });
});

test("the last runs are listed newest first", async () => {
  const { runs } = await stats.listDispatchRuns({ pageSize: 3 });
  expect(runs.map(({ attempts, delivered, failed }) => [attempts, delivered, failed])).toEqual([
    [3, 1, 0],
    [1, 1, 0],
    [9, 5, 1],
  ]);
  expect([runs[0]?.closed, runs[0]?.workflowId]).toEqual([undefined, "dispatch-pending-deliveries"]);
  expect(runs[1]?.closed).toBeDefined();
});

test("whoever watches is told now and whenever something has changed", async () => {
  const leaving = new AbortController();
  const told: bigint[] = [];
  const { pending } = (await stats.getOverview({})).overview ?? {};
  for await (const { overview } of stats.watchOverview({}, { signal: leaving.signal })) {
    told.push(overview?.pending ?? 0n);
    if (told.length === 1) await store("pending", 1);
    else break;
  }
  expect(told).toEqual([pending, (pending ?? 0n) + 1n]);
});

test("whoever watches is told again what has not changed, so that no proxy takes the stream for dead", async () => {
  const other = await startTestApi({ databaseUrl: api.databaseUrl, overviewSilenceMs: 2_000 });
  try {
    const told: unknown[] = [];
    for await (const { overview } of other.client(StatsService).watchOverview({})) {
      told.push(overview);
      if (told.length === 2) break;
    }
    expect(told[1]).toEqual(told[0]);
  } finally {
    await other.stop();
  }
});

test("a watch ends when its key is revoked, and when the service stops", async () => {
  const other = await startTestApi({ databaseUrl: api.databaseUrl });
  const { id, secret } = await api.key({ permissions: ONLY.read });
  const ending = async (watch: AsyncIterable<unknown>, started: () => Promise<unknown>) => {
    try {
      for await (const _ of watch) await started();
      return undefined;
    } catch (error) {
      return ConnectError.from(error).code;
    }
  };
  const revoke = () => api.context.db("api_keys").where({ id }).update({ revoked: new Date() });
  const watch = api.client(StatsService, secret).watchOverview({});
  expect(await ending(watch, revoke)).toBe(Code.Unauthenticated);

  const stopped = other.client(StatsService).watchOverview({});
  expect(await ending(stopped, async () => void other.stop())).toBe(Code.Unavailable);
});

test("many readers share one reading while it is fresh, and a reading that failed is not kept", async () => {
  let readings = 0;
  const shared = sharedReading(async () => {
    readings += 1;
    await delay(5);
    if (readings === 1) throw new Error("away");
    return readings;
  }, 60_000);
  const failed = await Promise.allSettled([shared(), shared()]);
  expect(failed.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(await Promise.all([shared(), shared()])).toEqual([2, 2]);
  expect(await shared()).toBe(2);
});

test("a delivery that is sent again counts as failed no more, and its attempts still count", async () => {
  const { db } = api.context;
  const [id = ""] = await storeDeliveries(db, [{ webhookId, state: "failed", tried: [{ status: 500 }] }]);
  const before = await readOverview(db, "everything");
  await api.client(DeliveryService).sendAgain({ deliveryId: id });
  const expected = {
    ...before,
    pending: before.pending + 1n,
    failed: before.failed - 1n,
    failedLastDay: before.failedLastDay - 1n,
  };
  expect(await readOverview(db, "everything")).toEqual(expected);
  while ((await foldDeltas(db)) > 0);
  expect(await readOverview(db, "everything")).toEqual(expected);
  expect(expected.attemptsLastDay).toBeGreaterThan(0n);
});

test("a process that knows no Temporal says so when it is to dispatch", async () => {
  const refused = await failure(stats.dispatchNow({}));
  expect(refused?.code).toBe(Code.FailedPrecondition);
  expect(refused?.rawMessage).toContain("TEMPORAL_ADDRESS");
});

test("more spans or runs than there may be are INVALID_ARGUMENT", async () => {
  const refused = await Promise.all([
    failure(stats.getHistory({ buckets: 289 })),
    failure(stats.getHistory({ buckets: -1 })),
    failure(stats.listDispatchRuns({ pageSize: 101 })),
    failure(stats.listWebhookHistory({ hours: 2 })),
    failure(stats.listWebhookHistory({ webhookIds: Array.from({ length: 101 }, (_, n) => BigInt(n + 1)) })),
  ]);
  expect(refused.map((error) => error?.code)).toEqual(refused.map(() => Code.InvalidArgument));
});

test("reading takes Read_Administrative_Data, and dispatching Write_Administrative_Data", async () => {
  const all = [...ONLY.read, ...ONLY.write, ...ONLY.publish, ...ONLY.manage];
  const without = async (permission: number) => {
    const { secret } = await api.key({ permissions: all.filter((each) => each !== permission) });
    return api.client(StatsService, secret);
  };
  const blind = await without(ONLY.read[0] as number);
  const watched = async () => {
    for await (const _ of blind.watchOverview({})) return;
  };
  const mayNotWrite = await without(ONLY.write[0] as number);
  const calls = [
    blind.getOverview({}),
    blind.getHistory({}),
    blind.listWebhookStats({}),
    blind.listDispatchRuns({}),
    watched(),
    mayNotWrite.dispatchNow({}),
  ];
  const refused = await Promise.all(calls.map((call) => failure(call)));
  expect(refused.map((error) => error?.code)).toEqual(calls.map(() => Code.PermissionDenied));
});
