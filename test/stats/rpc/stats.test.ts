import { randomUUID } from "node:crypto";
import { timestampDate, timestampMs } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { Bottleneck } from "../../../gen/webhook/v1/stats_pb.ts";
import { foldDeltas } from "../../../src/maintenance/fold.ts";
import { CHANGE } from "../../../src/queue/rollup-deltas.ts";
import { timeOfId } from "../../../src/schema/partitions.ts";
import { LATENCY_BOUNDS_MS } from "../../../src/stats/rollups.ts";
import { sharedReading } from "../../../src/stats/rpc/shared-reading.ts";
import { timed } from "../../support/database-time.ts";
import { expectRefused } from "../../support/refusals.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { ONLY, startTestApi, useApi } from "../../support/test-api.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const { retrying, delivered, failed, cancelled } = CHANGE;

const api = await useApi();
const { db } = api.context;
const { stats } = api;
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

const states = ["pending", "pending", "pending", "delivering", "retrying", "retrying"] as const;
const open = await storeDeliveries(
  db,
  states.map((state) => ({ webhookId, state })),
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
  const { overview } = await stats.getOverview({});
  expect(overview).toMatchObject({ pending: 3n, delivering: 1n, retrying: 2n, failed: 11n, cancelled: 1n });
  expect(overview).toMatchObject({ attemptsLastDay: 13n, deliveredLastDay: 7n, failedLastDay: 1n });
  const previous = { attemptsPreviousDay: 100n, deliveredPreviousDay: 90n, failedPreviousDay: 10n };
  expect(overview).toMatchObject({ ...previous, failedAttemptsPreviousDay: 10n });
});

test("the overview says when the oldest pending and the oldest retried delivery were created, of a scope too", async () => {
  const oldest = (ids: string[]) => Math.min(...ids.map((id) => timeOfId(id).getTime()));
  const [pending, retrying] = [oldest(open.slice(0, 3)), oldest(open.slice(4))];
  const told = async (as: typeof stats) => {
    const { overview } = await as.getOverview({});
    return [overview?.oldestPending, overview?.oldestRetrying].map((each) => each && timestampMs(each));
  };
  expect(await told(stats)).toEqual([pending, retrying]);
  const own = await api.key({ permissions: ONLY.read, customer: "c-1" });
  await db("webhooks").where("id", String(webhookId)).update({ customer: "c-1" });
  expect(await told(api.as(own.secret).stats)).toEqual([pending, retrying]);
  await db("webhooks").where("id", String(webhookId)).update({ customer: null });
  const stranger = await api.key({ permissions: ONLY.read, customer: "c-2" });
  expect(await told(api.as(stranger.secret).stats)).toEqual([undefined, undefined]);
});

test("the overview tells what held up live workers, to keys of the whole service, and a watch tells of it at once", async () => {
  const worker = (bottleneck: string | null, leaseMs = HOUR) => ({
    name: "worker",
    task_queue: "worker",
    lease_until: new Date(Date.now() + leaseMs),
    bottleneck,
  });
  const told: Bottleneck[][] = [];
  for await (const { overview } of stats.watchOverview({})) {
    told.push(overview?.bottlenecks ?? []);
    if (told.length === 2) break;
    await db("workers").insert([
      ...["limit", "database", "limit", null, "of a newer version"].map((cause) => worker(cause)),
      worker("thread", -HOUR),
    ]);
  }
  expect(told).toEqual([[], [Bottleneck.DATABASE, Bottleneck.LIMIT]]);
  const installedAppId = randomUUID();
  await db("installed_apps").insert({ id: installedAppId, name: "app" });
  const { secret } = await api.key({ permissions: ONLY.read, installedAppId });
  expect((await api.as(secret).stats.getOverview({})).overview?.bottlenecks).toEqual([]);
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

test("the history of an hour, a day and a week has intervals that start at round times, the last one now", async () => {
  for (const [hours, buckets] of [
    [1, 60],
    [24, 48],
    [168, 56],
  ] as const) {
    const history = await stats.getHistory({ hours, buckets });
    const starts = history.buckets.map(({ start }) => Number(start?.seconds));
    const seconds = (hours * 3_600) / buckets;
    expect(starts.map((start) => start % seconds)).toEqual(starts.map(() => 0));
    const attempts = history.buckets.reduce((sum, bucket) => sum + bucket.attempts, 0n);
    expect([hours, attempts]).toEqual([hours, { 1: 3n, 24: 13n, 168: 113n }[hours]]);
  }
  const refused = (request: object, says: string) =>
    expectRefused(stats.getHistory(request), Code.InvalidArgument, says);
  await refused({ hours: 2 }, "hours is 2; allowed: 1, 24, 168");
  await refused({ hours: 1, buckets: 61 }, "buckets must be from 1 to 60");
  await refused({ hours: 168, buckets: 288 }, "buckets must be from 1 to 168");
});

test("the history of a period with a start and an end has no counts from outside it", async () => {
  const { buckets } = await stats.getHistory({ hours: 168, buckets: 168 });
  const at = buckets.findIndex(({ attempts }) => attempts > 0n);
  const [from, to] = [buckets[at - 1]?.start, buckets[at + 1]?.start];
  const attemptsOf = async (request: object) =>
    (await stats.getHistory({ from, to, ...request })).buckets.map(({ attempts }) => attempts);
  const attempts = buckets[at]?.attempts as bigint;
  expect(await attemptsOf({})).toEqual([attempts]);
  expect(await attemptsOf({ buckets: 2 })).toEqual([0n, attempts]);
  for (const [request, says] of [
    [{ hours: 1 }, "hours must be 0 in a request with from and to"],
    [{ to: undefined }, "to is required: from and to belong together"],
    [{ from: undefined }, "from is required: from and to belong together"],
    [{ to: from }, "to must be later than from"],
    [{ buckets: 121 }, "buckets must be from 1 to 120"],
  ] as const)
    await expectRefused(attemptsOf(request), Code.InvalidArgument, says);
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

describe("a webhook's attempts and their latency", () => {
  let [own, quiet] = [0n, 0n];
  let minutes: number[] = [];
  beforeAll(async () => {
    [own, quiet] = [await api.register(), await api.register()];
    minutes = [
      await happened(1 / 6, [...times(3, delivered), retrying], [3, 3, 3, 90], own),
      await happened(5, [delivered, retrying], [3, 900], own),
      await happened(72, [delivered], [14_000], own),
    ];
    await happened(9 * 24, [delivered], [1], own);
    await foldAll();
  });

  test("are counted over the last hour, day and week", async () => {
    const { periods } = await stats.getWebhookStats({ webhookId: own });
    // Upper bounds of the classes: 3 ms is below 4, 90 below 91, 900 below 1,024, 14,000 below 16,384.
    expect(periods).toMatchObject([
      { hours: 1, attempts: 4n, delivered: 3n, failed: 0n, latencyP50Ms: 4, latencyP95Ms: 91 },
      { hours: 24, attempts: 6n, delivered: 4n, failed: 0n, latencyP50Ms: 4, latencyP95Ms: 1_024 },
      { hours: 168, attempts: 7n, delivered: 5n, failed: 0n, latencyP50Ms: 4, latencyP95Ms: 16_384 },
    ]);
    const none = (await stats.getWebhookStats({ webhookId: quiet })).periods;
    expect(none.map((each) => [each.attempts, each.latencyP50Ms])).toEqual(Array(3).fill([0n, undefined]));
  });

  test.each<[string, number, number, number, bigint, number, unknown[]]>([
    ["an hour", 1, 30, 120, 4n, 0, [4n, 1n, 4, 91]],
    ["a day", 0, 24, 3_600, 6n, 1, [2n, 1n, 4, 1_024]],
    ["a week", 168, 28, 21_600, 7n, 2, [1n, 0n, 16_384, 16_384]],
  ])("are read in intervals over %s, up to now", async (_, hours, intervals, seconds, all, nth, expected) => {
    const webhookIds = [quiet, own, 999_999n, own];
    const [history, span] = await timed(db, () => stats.listWebhookHistory({ webhookIds, hours }));
    expect(history.intervalSeconds).toBe(seconds);
    const [none, found, ...more] = history.webhooks;
    expect([none?.webhookId, found?.webhookId, more]).toEqual([quiet, own, []]);
    const counts = none?.intervals.map((each) => [each.attempts, each.latencyP50Ms]);
    expect(counts).toEqual(Array(intervals).fill([0n, undefined]));
    const starts = (found?.intervals ?? []).map(({ start }) => Number(start?.seconds));
    const [first = 1, last = 0] = [starts[0], starts.at(-1)];
    expect(starts).toEqual(Array.from({ length: intervals }, (__, n) => first + n * seconds));
    expect(first % seconds).toBe(0);
    expect(last * 1_000).toBeLessThanOrEqual(span.to.getTime());
    expect((last + seconds + 60) * 1_000).toBeGreaterThan(span.from.getTime());
    const at = starts.findLastIndex((start) => start * 1_000 <= (minutes[nth] as number));
    const { attempts, failedAttempts, latencyP50Ms, latencyP95Ms } = found?.intervals[at] ?? {};
    expect([attempts, failedAttempts, latencyP50Ms, latencyP95Ms]).toEqual(expected);
    expect(found?.attempts).toBe(all);
    expect(found?.intervals.reduce((sum, each) => sum + each.attempts, 0n)).toBe(all);
  });
});

test("each webhook's counts are answered for up to 1,000 webhooks at once", async () => {
  const read = (count: number) => stats.listWebhookStats({ webhookIds: Array(count).fill(webhookId) });
  expect((await read(1_000)).webhooks).toMatchObject([{ webhookId }]);
  await expectRefused(read(1_001), Code.InvalidArgument, /1001 ids; at most 1000/);
});

test("attempts of one latency class in a week may exceed 32 bits", async () => {
  const own = await api.register();
  const attempts = 1_200_000_000;
  // Hours of one interval of six hours, in UTC, before the current one.
  const interval = Math.floor(Date.now() / (6 * HOUR)) * 6 * HOUR - 24 * HOUR;
  const counts = { attempts, failed_attempts: 0, delivered: attempts, failed: 0, cancelled: 0, filtered: 0 };
  const latency = [0, 0, attempts, ...Array<number>(LATENCY_BOUNDS_MS.length - 2).fill(0)];
  const hour = { webhook_id: String(own), ...counts, total_ms: String(attempts * 3), longest_ms: 3, latency };
  const starts = [interval, interval + HOUR].map((start) => new Date(start));
  await db("rollup_hours").insert(starts.map((start) => ({ ...hour, start })));
  const expected = { attempts: 2_400_000_000n, latencyP50Ms: 4 };
  const { periods } = await stats.getWebhookStats({ webhookId: own });
  expect(periods.at(-1)).toMatchObject({ hours: 168, ...expected });
  const { webhooks } = await stats.listWebhookHistory({ webhookIds: [own], hours: 168 });
  expect(webhooks).toMatchObject([expected]);
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

test("a watch sends counts at once, after each change, and before a proxy closes an idle stream", async () => {
  const { pending = 0n } = (await stats.getOverview({})).overview ?? {};
  const watched = async (client: typeof stats, meanwhile: () => Promise<unknown>) => {
    const told: bigint[] = [];
    for await (const { overview } of client.watchOverview({})) {
      told.push(overview?.pending ?? 0n);
      if (told.length === 2) break;
      await meanwhile();
    }
    return told;
  };
  const changed = await watched(stats, () => storeDeliveries(db, [{ webhookId }]));
  expect(changed).toEqual([pending, pending + 1n]);
  const other = await startTestApi({ databaseUrl: api.databaseUrl, overviewSilenceMs: 1 });
  onTestFinished(() => other.stop());
  expect(await watched(other.stats, async () => {})).toEqual([pending + 1n, pending + 1n]);
});

test("a watch ends when its key is revoked, and when the service stops", async () => {
  const other = await startTestApi({ databaseUrl: api.databaseUrl });
  const { id, secret } = await api.key({ permissions: ONLY.read });
  const ending = async (client: typeof stats, started: () => unknown) => {
    for await (const _ of client.watchOverview({})) await started();
  };
  const revoke = () => db("api_keys").where({ id }).update({ revoked: new Date() });
  await expectRefused(ending(api.as(secret).stats, revoke), Code.Unauthenticated);
  const stopped = ending(other.stats, () => void other.stop());
  await expectRefused(stopped, Code.Unavailable);
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

test("a process that knows no Temporal says so when it is to dispatch", async () => {
  await expectRefused(stats.dispatchNow({}), Code.FailedPrecondition, "TEMPORAL_ADDRESS");
});
