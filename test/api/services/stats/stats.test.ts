import { randomUUID } from "node:crypto";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { sharedReading } from "../../../../src/api/services/stats/shared-reading.ts";
import { CHANGE } from "../../../../src/db/deliveries/rollup-deltas.ts";
import { foldDeltas, LATENCY_BOUNDS_MS } from "../../../../src/db/deliveries/rollups.ts";
import { readHistory, readOverview, webhookStats } from "../../../../src/db/deliveries/stats.ts";
import { timed } from "../../../support/database-time.ts";
import { expectRefused } from "../../../support/refusals.ts";
import { storeDeliveries } from "../../../support/stored-deliveries.ts";
import { ONLY, startTestApi, useApi } from "../../../support/test-api.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const { retrying, delivered, failed, cancelled } = CHANGE;

const api = await useApi();
const { db } = api.context;
const { stats, deliveries } = api;
const webhookId = await api.register();

/** Stores what attempts changed and how long they took, as recording their results does; answers the minute. */
async function happened(hoursAgo: number, changes: number[], durations: number[] = [], of = webhookId) {
  const minute = Math.floor((Date.now() - hoursAgo * HOUR) / MINUTE) * MINUTE;
  await db("rollup_deltas").insert({
    minute: new Date(minute),
    webhook_ids: changes.map(() => String(of)),
    changes,
    durations_ms: changes.map((change, n) => durations[n] ?? (change === cancelled ? -1 : 10)),
  });
  return minute;
}
const times = (count: number, change: number) => Array<number>(count).fill(change);
const foldAll = async () => {
  while ((await foldDeltas(db)) > 0);
};

await storeDeliveries(
  db,
  (["pending", "pending", "pending", "delivering", "retrying", "retrying"] as const).map((state) => ({
    webhookId,
    state,
  })),
);
await happened(25, [...times(90, delivered), ...times(10, failed)]);
await happened(5.5, [...times(5, delivered), failed, ...times(3, retrying)]);
await foldAll();
// Counts that are not folded yet are added to those that are.
await happened(5.4, [delivered]);
await happened(0.01, [delivered, retrying, retrying, cancelled]);
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

test("the overview counts open deliveries by state, the log's by outcome, and what happened in the last day", async () => {
  expect((await stats.getOverview({})).overview).toMatchObject({
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
  });
});

test("the history has the last day in equal spans, those in which nothing happened too", async () => {
  const { buckets } = await stats.getHistory({});
  expect(buckets).toHaveLength(24);
  const starts = buckets.map(({ start }) => (start ? timestampDate(start).getTime() : 0));
  expect(starts).toEqual(starts.map((_, n) => (starts[0] as number) + n * HOUR));
  const some = buckets.map(({ attempts, delivered, failed }) => [attempts, delivered, failed]);
  expect(some[18]).toEqual([10n, 6n, 1n]);
  expect(some[23]).toEqual([3n, 1n, 0n]);
  expect(some.filter(([attempts]) => attempts === 0n)).toHaveLength(22);
  expect((await stats.getHistory({ buckets: 288 })).buckets).toHaveLength(288);
});

test("each webhook's success and speed are counted since the full hour 24 hours ago", async () => {
  const tried = [...times(9, 10), 70].map((durationMs) => ({ status: 500, durationMs }));
  const other = await api.register();
  await storeDeliveries(db, [
    { webhookId: other, state: "failed", tried },
    { webhookId: other, state: "failed", reason: "interrupted" },
  ]);
  const { webhooks, since } = await stats.listWebhookStats({});
  expect(webhooks).toMatchObject([
    { webhookId, delivered: 7n, failed: 1n, attempts: 13n, averageMs: 10, longestMs: 10 },
    { webhookId: other, delivered: 0n, failed: 2n, attempts: 10n, averageMs: 16, longestMs: 70 },
  ]);
  expect(Number(since?.seconds) % 3_600).toBe(0);
});

test("counts are the same whether they are folded or not, and are read while they are folded", async () => {
  // Health is judged when counts are folded.
  const health = { healthyWebhooks: 0n, degradedWebhooks: 0n, failingWebhooks: 0n };
  const now = new Date();
  const read = async () => [
    { ...(await readOverview(db, "everything")), ...health },
    await readHistory(db, "everything", 24, now),
    (await webhookStats(db, [webhookId])).webhooks,
  ];
  for (let minute = 0; minute < 600; minute += 1) await happened(minute / 60, [delivered]);
  const before = await read();
  for (let folded = 1; folded > 0; ) {
    const [step, meanwhile] = await Promise.all([foldDeltas(db), read()]);
    expect(meanwhile).toEqual(before);
    folded = step;
  }
  expect(await db("rollup_deltas")).toEqual([]);
  expect(await read()).toEqual(before);
});

test("a webhook's last hour, day and week have counts and latencies, and no other webhook's", async () => {
  const own = await api.register();
  await happened(1 / 6, times(4, delivered), [3, 3, 3, 90], own);
  await happened(5, times(4, delivered), [3, 900, 900, 900], own);
  await happened(3 * 24, [delivered], [14_000], own);
  await happened(9 * 24, [delivered], [1], own);
  await foldAll();
  const { periods } = await stats.getWebhookStats({ webhookId: own });
  // Upper bounds of the classes: 3 ms is below 4, 90 below 91, 900 below 1,024, 14,000 below 16,384.
  expect(periods).toMatchObject([
    { hours: 1, attempts: 4n, delivered: 4n, failed: 0n, latencyP50Ms: 4, latencyP95Ms: 91 },
    { hours: 24, attempts: 8n, delivered: 8n, failed: 0n, latencyP50Ms: 4, latencyP95Ms: 1_024 },
    { hours: 168, attempts: 9n, delivered: 9n, failed: 0n, latencyP50Ms: 91, latencyP95Ms: 16_384 },
  ]);
  const quiet = await stats.getWebhookStats({ webhookId: await api.register() });
  expect(quiet.periods.map(({ attempts, latencyP50Ms }) => [attempts, latencyP50Ms])).toEqual(
    Array(3).fill([0n, undefined]),
  );
});

test.each([
  { period: "an hour", hours: 1, spans: 30, seconds: 120, all: 3n, nth: 0, found: [3n, 1n, 4, 91] },
  { period: "a day", hours: 0, spans: 24, seconds: 3_600, all: 5n, nth: 1, found: [2n, 1n, 4, 1_024] },
  {
    period: "a week",
    hours: 168,
    spans: 28,
    seconds: 21_600,
    all: 6n,
    nth: 2,
    found: [1n, 0n, 16_384, 16_384],
  },
])("the attempts of webhooks and their latency are read over $period, up to now", async (expected) => {
  const [own, quiet] = [await api.register(), await api.register()];
  const minutes = [
    await happened(1 / 6, [delivered, delivered, retrying], [3, 3, 90], own),
    await happened(5, [delivered, retrying], [3, 900], own),
    await happened(72, [delivered], [14_000], own),
  ];
  await foldAll();
  const webhookIds = [quiet, own, 999_999n, own];
  const { hours } = expected;
  const [{ webhooks, intervalSeconds }, span] = await timed(db, () =>
    stats.listWebhookHistory({ webhookIds, hours }),
  );
  expect(webhooks.map((each) => each.webhookId)).toEqual([quiet, own]);
  const none = webhooks[0]?.intervals.map((each) => [each.attempts, each.latencyP50Ms]);
  expect(none).toEqual(Array(expected.spans).fill([0n, undefined]));
  const { intervals: some = [], attempts, latencyP50Ms, latencyP95Ms } = webhooks[1] ?? {};
  const starts = some.map(({ start }) => (start ? timestampDate(start).getTime() : 0));
  const [first = 1, last = 0] = [starts[0], starts.at(-1)];
  expect([starts.length, intervalSeconds, attempts]).toEqual([
    expected.spans,
    expected.seconds,
    expected.all,
  ]);
  expect(starts).toEqual(starts.map((_, n) => first + n * intervalSeconds * 1_000));
  expect(first % (intervalSeconds * 1_000)).toBe(0);
  expect(last).toBeLessThanOrEqual(span.to.getTime());
  expect(last + intervalSeconds * 1_000 + MINUTE).toBeGreaterThan(span.from.getTime());
  const found = some[starts.findLastIndex((start) => start <= (minutes[expected.nth] as number))];
  expect([found?.attempts, found?.failedAttempts, found?.latencyP50Ms, found?.latencyP95Ms]).toEqual(
    expected.found,
  );
  expect(some.reduce((sum, each) => sum + each.attempts, 0n)).toBe(attempts);
  expect((latencyP95Ms ?? 0) >= (latencyP50Ms ?? 1)).toBe(true);
});

test("attempts of one latency class in a week may exceed 32 bits", async () => {
  const own = await api.register();
  const attempts = 1_200_000_000;
  // Hours of one interval of six hours, in UTC, before the current one.
  const interval = Math.floor(Date.now() / (6 * HOUR)) * 6 * HOUR - 24 * HOUR;
  const counts = { attempts, failed_attempts: 0, delivered: attempts, failed: 0, cancelled: 0, filtered: 0 };
  await db("rollup_hours").insert(
    [interval, interval + HOUR].map((start) => ({
      webhook_id: String(own),
      start: new Date(start),
      ...counts,
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
  expect(runs).toMatchObject([
    { attempts: 3, delivered: 1, failed: 0, workflowId: "dispatch-pending-deliveries" },
    { attempts: 1, delivered: 1, failed: 0 },
    { attempts: 9, delivered: 5, failed: 1 },
  ]);
  expect([runs[0]?.closed === undefined, runs[1]?.closed === undefined]).toEqual([true, false]);
});

test("whoever watches is told now and whenever something has changed", async () => {
  const { pending = 0n } = (await stats.getOverview({})).overview ?? {};
  const told: bigint[] = [];
  for await (const { overview } of stats.watchOverview({})) {
    told.push(overview?.pending ?? 0n);
    if (told.length === 2) break;
    await storeDeliveries(db, [{ webhookId }]);
  }
  expect(told).toEqual([pending, pending + 1n]);
});

test("whoever watches is told again what has not changed, so that no proxy takes the stream for dead", async () => {
  const other = await startTestApi({ databaseUrl: api.databaseUrl, overviewSilenceMs: 1 });
  onTestFinished(() => other.stop());
  const told: unknown[] = [];
  for await (const { overview } of other.stats.watchOverview({})) {
    told.push(overview);
    if (told.length === 2) break;
  }
  expect(told[1]).toEqual(told[0]);
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
  const watch = api.as(secret).stats.watchOverview({});
  const revoke = () => db("api_keys").where({ id }).update({ revoked: new Date() });
  expect(await ending(watch, revoke)).toBe(Code.Unauthenticated);
  const stopped = other.stats.watchOverview({});
  expect(await ending(stopped, async () => void other.stop())).toBe(Code.Unavailable);
});

test("many readers share one reading while it is fresh, and a reading that failed is not kept", async () => {
  let readings = 0;
  const shared = sharedReading(async () => {
    readings += 1;
    if (readings === 1) throw new Error("away");
    return readings;
  }, HOUR);
  const outcomes = await Promise.allSettled([shared(), shared()]);
  expect(outcomes.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
  expect(await Promise.all([shared(), shared()])).toEqual([2, 2]);
  expect(await shared()).toBe(2);
});

test("a delivery that is sent again counts as failed no more, and its attempts still count", async () => {
  const [deliveryId = ""] = await storeDeliveries(db, [
    { webhookId, state: "failed", tried: [{ status: 500 }] },
  ]);
  const before = await readOverview(db, "everything");
  await deliveries.sendAgain({ deliveryId });
  const expected = {
    ...before,
    pending: before.pending + 1n,
    failed: before.failed - 1n,
    failedLastDay: before.failedLastDay - 1n,
  };
  expect(await readOverview(db, "everything")).toEqual(expected);
  await foldAll();
  expect(await readOverview(db, "everything")).toEqual(expected);
});

test("a process that knows no Temporal says so when it is to dispatch", async () => {
  await expectRefused(stats.dispatchNow({}), Code.FailedPrecondition, "TEMPORAL_ADDRESS");
});
