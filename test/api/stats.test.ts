import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { type Client, Code, ConnectError, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { sharedReading } from "../../src/api/shared-reading.ts";
import { webhookStats } from "../../src/db/stats.ts";
import { grpc } from "../support/clients.ts";
import { failure } from "../support/failure.ts";
import { ONLY, startTestApi, type TestApi } from "../support/test-api.ts";

const HOUR = 3_600_000;
let api: TestApi;
let stats: Client<typeof StatsService>;
let webhookId: string;

beforeAll(async () => {
  api = await startTestApi();
  stats = createClient(StatsService, grpc(api));
  const url = "https://receiver.example/";
  const made = await api.rest("POST", "/api/webhook", { json: { process: 1, url } });
  webhookId = String(made.envelope.Data.Id);
  const states = { pending: 3, delivering: 1, retrying: 2, delivered: 7, failed: 2, cancelled: 1 };
  for (const [state, count] of Object.entries(states)) await store(state, count);
  const { db } = api.context;
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
});
afterAll(() => api.stop());

async function store(state: string, count: number): Promise<string[]> {
  const made = await api.context
    .db("deliveries")
    .insert(Array.from({ length: count }, () => ({ event_id: randomUUID(), webhook_id: webhookId, state })))
    .returning("id");
  return made.map(({ id }) => id);
}

test("the overview counts what stands where now, and what the runs of the last day did", async () => {
  const { overview } = await stats.getOverview({});
  expect(overview).toMatchObject({
    pending: 3n,
    delivering: 1n,
    retrying: 2n,
    failed: 2n,
    cancelled: 1n,
    attemptsLastDay: 13n,
    deliveredLastDay: 7n,
    failedLastDay: 1n,
  });
});

test("the history has the last day in equal spans, those without a run too", async () => {
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

test("each webhook's success and speed are counted, of the latest deliveries where there are many", async () => {
  const { db } = api.context;
  const [first, second] = await store("delivered", 2);
  await db("attempts").insert([
    { delivery_id: first, number: 1, started: new Date(), duration_ms: 10, status: 500 },
    { delivery_id: first, number: 2, started: new Date(), duration_ms: 20, status: 200 },
    { delivery_id: second, number: 1, started: new Date(), duration_ms: 60, status: 200 },
  ]);
  const { webhooks, since } = await stats.listWebhookStats({});
  expect(webhooks).toEqual([
    expect.objectContaining({
      webhookId: BigInt(webhookId),
      delivered: 9n,
      failed: 2n,
      attempts: 3n,
      averageMs: 30,
      longestMs: 60,
    }),
  ]);
  expect(Math.abs(Date.now() - 24 * HOUR - (since ? timestampDate(since).getTime() : 0))).toBeLessThan(
    60_000,
  );
  const latest = await webhookStats(db, "everything", 2);
  expect(latest.webhooks).toMatchObject([{ delivered: 2n, failed: 0n, attempts: 3n }]);
  expect(Date.now() - latest.since.getTime()).toBeLessThan(60_000);
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

test("whoever watches is told now and whenever something has changed, and not otherwise", async () => {
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
  const watch = createClient(StatsService, grpc(api, secret)).watchOverview({});
  expect(await ending(watch, revoke)).toBe(Code.Unauthenticated);

  const stopped = createClient(StatsService, grpc(other)).watchOverview({});
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
  ]);
  expect(refused.map((error) => error?.code)).toEqual(refused.map(() => Code.InvalidArgument));
});

test("reading takes Read_Administrative_Data, and dispatching Write_Administrative_Data", async () => {
  const all = [...ONLY.read, ...ONLY.write, ...ONLY.publish, ...ONLY.manage];
  const without = async (permission: number) => {
    const { secret } = await api.key({ permissions: all.filter((each) => each !== permission) });
    return createClient(StatsService, grpc(api, secret));
  };
  const blind = await without(ONLY.read[0] as number);
  const watched = async () => {
    for await (const _ of blind.watchOverview({})) return;
  };
  const calls = [
    blind.getOverview({}),
    blind.getHistory({}),
    blind.listWebhookStats({}),
    blind.listDispatchRuns({}),
    watched(),
    (await without(ONLY.write[0] as number)).dispatchNow({}),
  ];
  const refused = await Promise.all(calls.map((call) => failure(call)));
  expect(refused.map((error) => error?.code)).toEqual(calls.map(() => Code.PermissionDenied));
});
