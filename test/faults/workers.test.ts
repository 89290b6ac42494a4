import { tsToMs } from "@temporalio/common/lib/time.js";
import { expect, onTestFinished, test } from "vitest";
import { rows } from "../../src/db/database.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { useCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import {
  checkAttempts,
  handleOfRun,
  holders,
  outcomes,
  removeAll,
  storeEvents,
  untilAllFinal,
} from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

/** What one worker may have sent and not recorded, rounded up; so much may its loss repeat. */
const FEW = 200;
/** The failure of an activity whose worker was stopped. */
const STOPPED = "the worker was stopped amid the pass";

/** A worker that a busy machine keeps waiting is not taken for dead at once. */
const cluster = await useCluster({ HEARTBEAT_TIMEOUT: "10s" });
const { db, publisher } = cluster;

/** Starts a receiver with a webhook of the test's own. */
async function startReceiver(...reply: Parameters<typeof cluster.ledger>) {
  const ledger = await cluster.ledger(...reply);
  return { ...ledger, webhookId: await cluster.register(ledger.url) };
}

/** Starts a worker with settings of the test's own, until its end. */
async function startWorker(settings: Record<string, string>): Promise<ServiceProcess> {
  const worker = await cluster.startWorker(settings);
  onTestFinished(async () => void (await worker.end("SIGKILL")));
  return worker;
}

/** Every delivery has ended so, and each attempt was one request. */
async function expectOnce(ledgers: Ledger[], expected: Awaited<ReturnType<typeof outcomes>>): Promise<void> {
  await untilAllFinal(db);
  await checkAttempts(db);
  expect(await outcomes(db)).toEqual(expected);
  const { recorded, repeats, invented } = await reconcile(db, ledgers);
  const requests = expected.reduce((sum, { attempts, n }) => sum + attempts * n, 0);
  expect({ recorded, repeats, invented }).toEqual({ recorded: requests, repeats: [], invented: 0 });
}

const retries = ({ entries }: Ledger) =>
  entries.length - new Set(entries.map(({ deliveryId }) => deliveryId)).size;

// woken-workers.test.ts has two workers that share in every run of the tests.
test.runIf(FULL_SIZE)(
  "two workers drain one queue together, and neither sends what the other sends",
  async () => {
    await removeAll(db);
    /** More than one statement claims. */
    const events = 2_000;
    const haveBothClaimed = Promise.withResolvers<number>();
    const ledger = await startReceiver(20, () => haveBothClaimed.promise);
    await cluster.workers(2);
    await storeEvents(db, [ledger.webhookId], events);
    await until(async () => (await holders(db)).length === 2);
    haveBothClaimed.resolve(200);
    await expectOnce([ledger], [{ state: "delivered", attempts: 1, n: events }]);
  },
);

test("a worker that stalls while another takes over overwrites nothing, loses nothing, and works on afterwards", async () => {
  await removeAll(db);
  const events = FULL_SIZE ? 300 : 40;
  const [stalling] = await cluster.workers(1);
  // Answers come when the worker has stopped, so that it has requests in flight.
  const stopped = Promise.withResolvers<void>();
  const good = await startReceiver(0, () => stopped.promise.then(() => 200));
  const failing = await startReceiver(25, () => 500);
  const attempts = () =>
    rows<{ delivery_id: string; number: number; started: Date; duration_ms: number; status: number | null }>(
      db,
      "select delivery_id, number, started, duration_ms, status from all_attempts order by delivery_id, number",
    );
  await publisher.publish(events);
  await until(() => good.entries.length > 0);
  stalling?.process.kill("SIGSTOP");
  const stalledAt = Date.now();
  stopped.resolve();
  // What the stalled one had claimed is taken over and tried without it.
  const states = () => rows<{ id: string; attempts: number }>(db, "select id, attempts from all_deliveries");
  const claimed = await rows<{ id: string; attempts: number }>(
    db,
    "select id, attempts from all_deliveries where claimed_by is not null",
  );
  expect(claimed.length).toBeGreaterThan(0);
  await cluster.workers(2);
  await until(async () => {
    const now = new Map((await states()).map((each) => [each.id, each.attempts]));
    return claimed.every((each) => (now.get(each.id) ?? 0) > each.attempts);
  });
  const before = await attempts();
  const resumedAt = Date.now();
  stalling?.process.kill("SIGCONT");

  // Its late results are behind it once it has worked on for others to see: alone.
  await cluster.workers(1);
  await publisher.publish(10);
  await untilAllFinal(db);
  await checkAttempts(db);
  expect(stalling?.process.exitCode).toBeNull();
  expect(await outcomes(db)).toEqual([
    { state: "delivered", attempts: 1, n: events + 10 },
    { state: "failed", attempts: 4, n: events + 10 },
  ]);
  const after = await attempts();
  const known = new Set(after.map((attempt) => JSON.stringify(attempt)));
  expect(before.filter((attempt) => !known.has(JSON.stringify(attempt)))).toEqual([]);
  const late = after.filter(
    ({ started, duration_ms }) =>
      started.getTime() < stalledAt && started.getTime() + duration_ms > resumedAt,
  );
  expect(late).toEqual([]);
  const { repeats, invented } = await reconcile(db, [good, failing]);
  expect(invented).toBe(0);
  // What the stalled worker had sent and not recorded was sent again by the other, under the same number.
  expect(repeats.length).toBeGreaterThan(0);
  expect(repeats.length).toBeLessThanOrEqual(FEW);
  tell(`stalled for ${((resumedAt - stalledAt) / 1_000).toFixed(1)} s: ${repeats.length} requests repeated`);
});

/** The adaptive limit, not the default of 4,000, decides how many are in flight to receivers that answer at once. */
const REPEATING = [
  { what: "receivers that answer at once", hosts: 2, answerMs: 0, settings: undefined, most: FEW },
  ...(FULL_SIZE
    ? [
        {
          what: "receivers that answer after 300 ms",
          hosts: 20,
          answerMs: 300,
          settings: { DELIVERY_MAX_IN_FLIGHT: "300" },
          most: 300,
        },
      ]
    : []),
];

test.each(REPEATING)(
  "a worker killed amid deliveries to $what repeats at most $most, and one that is stopped none",
  async ({ what, hosts, answerMs, settings, most }) => {
    await removeAll(db);
    if (settings) await cluster.workers(0);
    const deliveries = FULL_SIZE ? 60_000 : 1_200;
    const ledgers: Awaited<ReturnType<typeof startReceiver>>[] = [];
    for (let host = 0; host < hosts; host += 1) ledgers.push(await startReceiver(answerMs));
    const webhooks = ledgers.map(({ webhookId }) => webhookId);
    await storeEvents(db, webhooks, deliveries / hosts);
    /** The number of requests by delivery. */
    const sent = () =>
      Map.groupBy(
        ledgers.flatMap(({ entries }) => entries),
        ({ deliveryId }) => deliveryId,
      );
    let before = sent();
    /** The deliveries sent since the last end of a worker whose result is not recorded: they will be sent again. */
    const inDoubt = async () => {
      const now = sent();
      const open = await rows<{ id: string }>(db, "select id from queue");
      const length = (requests: typeof now, id: string) => requests.get(id)?.length ?? 0;
      const doubtful = open.filter(({ id }) => length(now, id) > length(before, id)).length;
      before = now;
      return doubtful;
    };
    const startAmid = async () => {
      const wanted = sent().size + deliveries / 6;
      const [worker] = settings ? [await startWorker(settings)] : await cluster.workers(1);
      await until(() => sent().size > wanted);
      return worker as ServiceProcess;
    };
    let repeated = 0;
    for (let kill = 1; kill <= (FULL_SIZE ? 3 : 1); kill += 1) {
      await (await startAmid()).end("SIGKILL");
      const repeats = await inDoubt();
      tell(`${what}: kill ${kill} repeats ${repeats}`);
      expect(repeats).toBeLessThanOrEqual(most);
      repeated += repeats;
    }
    expect(await (await startAmid()).end("SIGTERM")).toBe(0);
    expect(await inDoubt()).toBe(0);
    await cluster.workers(1);
    await untilAllFinal(db);
    await checkAttempts(db);
    expect(sent().size).toBe(deliveries);
    expect(ledgers.reduce((sum, ledger) => sum + retries(ledger), 0)).toBeLessThanOrEqual(repeated);
  },
);

test("a worker killed amid retries costs none of them: the same run makes the rest when they were due", async () => {
  await removeAll(db);
  await cluster.workers(0);
  // A retry that is put off as if it had failed again comes more than three minutes later.
  const times = { RETRY_INITIAL_DELAY: "2s", RETRY_BACKOFF_COEFFICIENT: "100", HEARTBEAT_TIMEOUT: "3s" };
  const ledger = await startReceiver(25, (_path, nth) => (nth === 1 ? 500 : 200));
  const killed = await startWorker(times);
  await publisher.publish(40);
  await until(() => retries(ledger) >= 8);
  await killed.end("SIGKILL");
  const left = await rows<{ id: string }>(
    db,
    "select id, run_id from retries where attempts = 1 order by id",
  );
  expect(left.length).toBeGreaterThan(8);
  await startWorker(times);
  await untilAllFinal(db);
  await checkAttempts(db);
  expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 2, n: 40 }]);
  // Another run would make them once the lease of this one is over.
  const ids = left.map(({ id }) => id);
  expect(
    await rows(db, "select id, run_id from deliveries where id = any(:ids::uuid[]) order by id", { ids }),
  ).toEqual(left);
});

test("a worker stopped by SIGTERM amid retries costs none of them: they begin again a second later, and nothing is sent twice", async () => {
  await removeAll(db);
  const [worker] = await cluster.workers(1);
  const ledger = await startReceiver(25, () => 500);
  await publisher.publish(40);
  await until(() => retries(ledger) >= 8);
  expect(await worker?.end("SIGTERM")).toBe(0);
  const open = await rows<{ id: string }>(db, "select id from runs where closed is null");
  // Of one run or two: attempts that fail one after another have pauses, so that another run, a second later, may have started
  // amid the first attempts. It has the retries of the rest.
  const pending = await Promise.all(
    open.map(async ({ id }) => (await handleOfRun(cluster, `id = ${id}`)).pending("retryDeliveries")),
  );
  const stopped = pending.flat().filter(({ lastFailure }) => lastFailure?.message?.includes(STOPPED));
  expect(stopped).not.toEqual([]);
  // Not at once: other workers may be stopping too.
  for (const { lastAttemptCompleteTime: ended, scheduledTime: next } of stopped)
    expect(tsToMs(next) - tsToMs(ended)).toBeGreaterThanOrEqual(1_000);
  await cluster.workers(1);
  await expectOnce([ledger], [{ state: "failed", attempts: 4, n: 40 }]);
});

test("a worker whose clock jumps by hours and days sends each delivery once, retries when it is due, and measures attempts right", async () => {
  await removeAll(db);
  await cluster.workers(0);
  const good = await startReceiver(20);
  const recovering = await startReceiver(20, (_path, nth) => (nth === 1 ? 503 : 200));
  const preload = new URL("jumping-clock.ts", import.meta.url).href;
  const worker = await startWorker({ NODE_OPTIONS: `--import=${preload}` });
  const steady = publisher.steadily(40);
  // Long enough for several jumps amid deliveries.
  await until(() => good.entries.length + recovering.entries.length > (FULL_SIZE ? 500 : 300));
  await steady.stop();
  await untilAllFinal(db);
  await checkAttempts(db);
  expect(worker.process.exitCode).toBeNull();
  const [{ n: events } = { n: 0 }] = await rows<{ n: number }>(db, "select count(*)::int as n from events");
  expect(await outcomes(db)).toEqual([
    { state: "delivered", attempts: 1, n: events },
    { state: "delivered", attempts: 2, n: events },
  ]);
  expect([good.entries.length, recovering.entries.length]).toEqual([events, 2 * events]);
  const [times] = await rows<{ least: number; most: number; hours: number }>(
    db,
    `select min(duration_ms)::int as least, max(duration_ms)::int as most,
        (extract(epoch from max(started) - min(started)) / 3600)::int as hours from all_attempts`,
  );
  expect(times?.least).toBeGreaterThanOrEqual(0);
  // Shorter than any jump.
  expect(times?.most).toBeLessThan(3_600_000);
  // The jumps did happen.
  expect(times?.hours).toBeGreaterThan(24);
});

test("what a worker that is cut off from Temporal had claimed is sent by it or by its successor, and nothing is sent twice", async () => {
  await removeAll(db);
  await cluster.workers(0);
  // With four requests at once, what one worker claims takes much longer than Temporal waits for its heartbeats.
  const settings = { DELIVERY_MAX_PER_WEBHOOK: "4", HEARTBEAT_TIMEOUT: "3s" };
  const events = 600;
  const ledger = await startReceiver(100);
  const gateway = await startDatabaseGateway(`tcp://${cluster.temporal.address}`);
  onTestFinished(gateway.close);
  await storeEvents(db, [ledger.webhookId], events);
  const cutOff = await startWorker({ ...settings, TEMPORAL_ADDRESS: new URL(gateway.url).host });
  const claimed = "select from queue where claimed_by is not null";
  await until(async () => (await rows(db, claimed)).length > events / 2);
  const run = await handleOfRun(cluster);
  gateway.hang();
  const successor = await startWorker(settings);
  await publisher.publish(20);
  // To Temporal, its pump is lost, amid its deliveries.
  await until(async () => {
    const { events: history } = await run.handle.fetchHistory();
    return history?.some(({ activityTaskTimedOutEventAttributes: timedOut }) => timedOut);
  });
  expect(ledger.entries.length).toBeLessThan(events);
  await expectOnce([ledger], [{ state: "delivered", attempts: 1, n: events + 20 }]);
  expect([cutOff.process.exitCode, successor.process.exitCode]).toEqual([null, null]);
  gateway.resume();
});
