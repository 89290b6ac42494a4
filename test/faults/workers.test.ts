import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { tsToMs } from "@temporalio/common/lib/time.js";
import { expect, onTestFinished, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";
import { ROOT } from "../support/program.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { useCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import { checkAttempts, handleOfRun, outcomes, removeAll, storeEvents, untilAllFinal } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

/** What one worker may have sent and not recorded, rounded up; so much may its loss repeat. */
const FEW = 200;
/** The failure of an activity whose worker was stopped. */
const STOPPED = "the worker was stopped amid the pass";

// A worker that a busy machine keeps waiting is not taken for dead at once. Each test goes on with the workers of the one before.
const cluster = await useCluster({ HEARTBEAT_TIMEOUT: "10s", DISPATCH_INTERVAL: "4s" });
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

test("what a worker that is cut off from Temporal had claimed is sent by it or by its successor, and nothing is sent twice", async () => {
  await removeAll(db);
  await cluster.workers(0);
  const events = 600;
  const ledger = await startReceiver(100);
  const gateway = await startDatabaseGateway(`tcp://${cluster.temporal.address}`);
  onTestFinished(gateway.close);
  await storeEvents(db, [ledger.webhookId], events);
  const cutOff = await startWorker({
    // With four requests at once, what one worker claims takes much longer than Temporal waits for its heartbeats.
    DELIVERY_MAX_PER_WEBHOOK: "4",
    HEARTBEAT_TIMEOUT: "3s",
    TEMPORAL_ADDRESS: new URL(gateway.url).host,
  });
  const claimed = "select from queue where claimed_by is not null";
  await until(async () => (await rows(db, claimed)).length > events / 2);
  const run = await handleOfRun(cluster);
  gateway.hang();
  const [successor] = await cluster.workers(1);
  await publisher.publish(20);
  // To Temporal, its pump is lost, amid its deliveries.
  await until(async () => {
    const { events: history } = await run.handle.fetchHistory();
    return history?.some(({ activityTaskTimedOutEventAttributes: timedOut }) => timedOut);
  });
  expect(ledger.entries.length).toBeLessThan(events);
  await expectOnce([ledger], [{ state: "delivered", attempts: 1, n: events + 20 }]);
  expect([cutOff.process.exitCode, successor?.process.exitCode]).toEqual([null, null]);
  gateway.resume();
});

test("a worker that stalls while another takes over overwrites nothing, loses nothing, and works on afterwards", async () => {
  await removeAll(db);
  const events = FULL_SIZE ? 300 : 40;
  const [stalling] = await cluster.workers(1);
  // Answers come when the worker has stopped, so that it has requests in flight.
  const stopped = Promise.withResolvers<number>();
  const good = await startReceiver(0, () => stopped.promise);
  const failing = await startReceiver(25, () => 500);
  const attempts = async () => {
    const columns = "delivery_id, number, started, duration_ms, status";
    return (await rows(db, `select ${columns} from all_attempts`)).map((each) => JSON.stringify(each));
  };
  await publisher.publish(events);
  await until(() => good.entries.length > 0);
  stalling?.process.kill("SIGSTOP");
  stopped.resolve(200);
  // What the stalled one had claimed is taken over and tried without it.
  const ofStalled = "select id, attempts from all_deliveries where claimed_by is not null";
  const claimed = await rows<{ id: string; attempts: number }>(db, ofStalled);
  expect(claimed.length).toBeGreaterThan(0);
  await cluster.workers(2);
  await until(async () => {
    const states = await rows<(typeof claimed)[number]>(db, "select id, attempts from all_deliveries");
    const now = new Map(states.map((each) => [each.id, each.attempts]));
    return claimed.every((each) => (now.get(each.id) ?? 0) > each.attempts);
  });
  const before = await attempts();
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
  expect(await attempts()).toEqual(expect.arrayContaining(before));
  const { repeats, invented } = await reconcile(db, [good, failing]);
  expect(invented).toBe(0);
  // What the stalled worker had sent and not recorded was sent again by the other, under the same number.
  expect(repeats.length).toBeGreaterThan(0);
  expect(repeats.length).toBeLessThanOrEqual(FEW);
  tell(`stalled: ${repeats.length} requests repeated`);
});

/** The adaptive limit, not the default of 4,000, decides how many are in flight to receivers that answer at once. */
const REPEATING = [
  { what: "receivers that answer at once", hosts: 2, answerMs: 0, settings: {}, most: FEW },
  {
    what: "receivers that answer after 300 ms",
    hosts: 20,
    answerMs: 300,
    settings: { DELIVERY_MAX_IN_FLIGHT: "300" },
    most: 300,
  },
];

test.each(FULL_SIZE ? REPEATING : REPEATING.slice(0, 1))(
  "a worker killed amid deliveries to $what repeats at most $most",
  async ({ what, hosts, answerMs, settings, most }) => {
    await removeAll(db);
    const deliveries = FULL_SIZE ? 60_000 : 1_200;
    const ledgers: Awaited<ReturnType<typeof startReceiver>>[] = [];
    for (let host = 0; host < hosts; host += 1) ledgers.push(await startReceiver(answerMs));
    const webhooks = ledgers.map(({ webhookId }) => webhookId);
    await storeEvents(db, webhooks, deliveries / hosts);
    /** The number of requests by delivery. */
    const sent = () => {
      const counts = new Map<string, number>();
      for (const { deliveryId: id } of ledgers.flatMap(({ entries }) => entries))
        counts.set(id, (counts.get(id) ?? 0) + 1);
      return counts;
    };
    let before = sent();
    /** The number of deliveries sent since the last call whose result is not recorded: they will be sent again. */
    const inDoubt = async () => {
      const now = sent();
      const open = await rows<{ id: string }>(db, "select id from queue");
      const doubtful = open.filter(({ id }) => (now.get(id) ?? 0) > (before.get(id) ?? 0)).length;
      before = now;
      return doubtful;
    };
    const endAmid = async (signal: NodeJS.Signals) => {
      const wanted = sent().size + deliveries / 6;
      const [worker] = FULL_SIZE ? [await startWorker(settings)] : await cluster.workers(1);
      await until(() => sent().size > wanted);
      const code = await worker?.end(signal);
      return [code, await inDoubt()] as const;
    };
    if (FULL_SIZE) await cluster.workers(0);
    let repeated = 0;
    for (let kill = 1; kill <= (FULL_SIZE ? 3 : 1); kill += 1) {
      const [, repeats] = await endAmid("SIGKILL");
      tell(`${what}: kill ${kill} repeats ${repeats}`);
      expect(repeats).toBeLessThanOrEqual(most);
      repeated += repeats;
    }
    // The next test stops one amid retries.
    if (FULL_SIZE) expect(await endAmid("SIGTERM")).toEqual([0, 0]);
    await cluster.workers(1);
    await untilAllFinal(db);
    await checkAttempts(db);
    expect(sent().size).toBe(deliveries);
    expect(ledgers.reduce((sum, ledger) => sum + retries(ledger), 0)).toBeLessThanOrEqual(repeated);
  },
);

test("a worker stopped by SIGTERM during retries loses none: they restart a second later, and nothing is sent twice", async () => {
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
  // No duration has a jump in it, and the jumps did happen.
  const [times] = await rows(
    db,
    `select min(duration_ms) >= 0 and max(duration_ms) < 3600000 as right,
        max(started) - min(started) > interval '24 hours' as jumped from all_attempts`,
  );
  expect(times).toEqual({ right: true, jumped: true });
});

const MIB = 2 ** 20;
const MEMORY_LIMIT = 256 * MIB;
/** Control groups that limit memory, in version 1 and 2. */
const CONTROLLERS = [
  { folder: "/sys/fs/cgroup/memory", limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes" },
  { folder: "/sys/fs/cgroup", limit: "memory.max", peak: "memory.peak" },
];

/** Makes a control group with a limit of memory; undefined unless this is root on Linux, on a machine that lets it. */
function limitedGroup() {
  for (const { folder, limit, peak } of CONTROLLERS) {
    const own = path.join(folder, `webhook-test-${process.pid}`);
    try {
      mkdirSync(own);
      if (!existsSync(path.join(own, limit))) throw new Error("not here");
      writeFileSync(path.join(own, limit), String(MEMORY_LIMIT));
      return { folder: own, peak: () => Number(readFileSync(path.join(own, peak), "utf8")) };
    } catch {
      if (existsSync(own)) rmdirSync(own);
    }
  }
  return undefined;
}

test("a worker limited to 256 MiB delivers payloads of 250 KiB without being killed", async ({ skip }) => {
  const group =
    limitedGroup() ?? skip("no control group can be made here: run as root on a machine that lets you");
  onTestFinished(() => rmdirSync(group.folder));
  await removeAll(db);
  await cluster.workers(0);
  const deliveries = FULL_SIZE ? 6_000 : 300;
  const receiver = await startReceiver(50);
  await storeEvents(db, [receiver.webhookId], deliveries, 250 * 1_024);
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-limited-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  /** Node, in the group. */
  const limitedNode = path.join(folder, "node");
  const script = `#!/bin/sh\necho $$ > ${group.folder}/cgroup.procs && exec "${process.execPath}" "$@"\n`;
  await writeFile(limitedNode, script, { mode: 0o755 });
  // With so little memory, a busy machine keeps it waiting for longer than the others.
  const environment = { ...cluster.environment, ROLE: "worker", HEARTBEAT_TIMEOUT: "60s" };
  const worker = await startServiceProcess(environment, [], ROOT, limitedNode);
  onTestFinished(async () => void (await worker.end("SIGKILL")));
  await expectOnce([receiver], [{ state: "delivered", attempts: 1, n: deliveries }]);
  expect(worker.process.exitCode ?? worker.process.signalCode).toBeNull();
  // The limit was in force: page cache included, all of it is used in time.
  expect(group.peak()).toBeGreaterThan(100 * MIB);
  expect(group.peak()).toBeLessThanOrEqual(MEMORY_LIMIT);
});
