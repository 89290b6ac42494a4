import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { createClient } from "@connectrpc/connect";
import type { Client, WorkflowHandle, WorkflowHandleWithFirstExecutionRunId } from "@temporalio/client";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import type { Reply } from "../../demo/receiver.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { ReplayService } from "../../gen/webhook/v1/replay_pb.ts";
import { addWorker, removeWorker } from "../../src/db/queue/workers.ts";
import { temporalNames } from "../../src/temporal/connection/names.ts";
import { TABLES } from "../db/queue/queue.ts";
import { type OwnCluster, startOwnCluster } from "../faults/cluster.ts";
import { temporalClient } from "../faults/parts.ts";
import { failingOnce, startRun as startRunOf, untilStep } from "../support/dispatch-runs.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { assertShape, type History, SHAPES } from "./shapes.ts";
import { HISTORIES, storeHistory } from "./stored-histories.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

// `npm run record-histories`: one test a run, each of which stores the histories of one or more shapes.

const names = temporalNames();
/** Not started by their schedule: each test starts its run. */
const SETTINGS = { DISPATCH_INTERVAL: "24h", HEARTBEAT_TIMEOUT: "2s" };
/** Of a run that lingers and does not ask again before another worker has started. */
const LONG_ASKS = { lingers: true, pumpMs: 120_000, retryInitialDelayMs: 15_000 };
/** As many activities of a group as a run starts before it lists the group again. */
const ACTIVITIES_PER_ASK = 5;
/** The `Retry-After` of retries for which a run waits: until it ends, or until something else happens. In seconds. */
const RETRY_AFTER_S = { short: 10, long: 600 };

let folder: string;
let cluster: OwnCluster;
let client: Client;
const workers: ServiceProcess[] = [];
const recorded: string[] = [];

beforeAll(async () => {
  const { version } = JSON.parse(await readFile(new URL("../../package.json", import.meta.url), "utf8")) as {
    version: string;
  };
  folder = path.join(HISTORIES, version);
  if (existsSync(folder)) {
    throw new Error(
      `${folder} exists. Histories of a release are never recorded again: set the version of the coming release ` +
        "in package.json, or remove the folder if that release has not been made yet",
    );
  }
  cluster = await startOwnCluster(SETTINGS);
  client = await temporalClient(cluster);
  await haveWorkers(1);
});
afterEach(async () => {
  const emptied = TABLES.replace("workers, ", "");
  await cluster.db.raw(`truncate ${emptied} cascade`);
  await haveWorkers(1);
});
afterAll(async () => {
  await client?.connection.close();
  await cluster?.end();
});

/** Starts or ends workers until so many live, and the database knows of no other. */
async function haveWorkers(count: number): Promise<void> {
  while (workers.length > count) await workers.pop()?.end("SIGTERM");
  while (workers.length < count) workers.push(await cluster.startWorker());
  const live = async () => (await cluster.db("workers").select()).length;
  await vi.waitUntil(async () => (await live()) === count, { timeout: 60_000, interval: 200 });
}

/** Kills the worker that has lived longest. */
async function killWorker(): Promise<void> {
  await workers.shift()?.end("SIGKILL");
}

const startRun = (id: string, input: Record<string, unknown> = {}) =>
  startRunOf({ temporal: client, scheduleId: names.scheduleId }, input, id);

async function store(shape: string, handle: WorkflowHandle): Promise<void> {
  const history = await handle.fetchHistory();
  assertShape(shape, history);
  await storeHistory(folder, shape, history);
  recorded.push(shape);
}

/** Waits until the run has ended, and stores what happened. */
async function storeEnded(shape: string, handle: WorkflowHandle): Promise<void> {
  await handle.result();
  await store(shape, handle);
}

/** Runs to the end and stores what happened. */
async function recordRun(shape: string, input: Record<string, unknown> = {}): Promise<void> {
  await storeEnded(shape, await startRun(shape, input));
}

/** Registers receivers with the reply, one webhook each, and publishes events to them. */
async function publishTo(reply: Reply, { events = 1, webhooks = 1 } = {}) {
  const receiver = await cluster.receiver(reply);
  for (let n = 1; n <= webhooks; n += 1) await cluster.register(`${receiver.url}/${n}`);
  await cluster.publisher.publish(events);
  return receiver;
}

/**
 * Starts a run that waits for the retry of one webhook, while its pump waits for the response of another, which fails when
 * told to and accepts the retry.
 */
async function startWaitingRun(shape: string, retryAfterS: number) {
  const answer = Promise.withResolvers<number>();
  onTestFinished(() => answer.resolve(503));
  const early = await cluster.receiver(failingOnce(retryAfterS));
  await cluster.register(early.url);
  const late = await publishTo(({ attempt }) => (attempt === 1 ? answer.promise : 200));
  const handle = await startRun(shape, { pumpMs: 60_000 });
  await expect.poll(() => late.received.length, { timeout: 60_000 }).toBe(1);
  await untilStep(handle, "wait for a retry");
  const untilRetried = () => late.until((received) => received.length === 2);
  return { handle, fail: () => answer.resolve(503), untilRetried };
}

/** Makes retries due that receivers asked for later; runs learn of it when they list failed deliveries. */
const makeDue = () => cluster.db("retries").update({ due: new Date() });

/** Waits until the run has started a pump on each of so many workers. */
async function untilPumps(handle: WorkflowHandle, count: number): Promise<void> {
  const running = async () =>
    ((await handle.describe()).raw.pendingActivities ?? []).filter(
      // One that no worker has taken has not started.
      ({ activityType, lastStartedTime }) => activityType?.name === "deliverPending" && lastStartedTime,
    );
  await expect.poll(running, { timeout: 60_000 }).toHaveLength(count);
}

test("a run with nothing to do", () => recordRun("nothing-to-do"));

test("a run that delivers everything at once, with two workers", async () => {
  await haveWorkers(2);
  await publishTo(() => 200, { events: 10, webhooks: 3 });
  await recordRun("delivered");
});

test("a run with retries that succeed", async () => {
  await publishTo(({ attempt }, response) => {
    if (attempt > 1) return attempt < 3 ? 503 : 200;
    // So late that the workflow sleeps before the first retry.
    response.writeHead(503, { "retry-after": "3" }).end();
    return undefined;
  });
  await recordRun("retries-that-succeed");
});

test("a run with failures until the last attempt", async () => {
  await publishTo(() => 500, { events: 3 });
  await recordRun("retries-that-fail");
});

test("a run with many groups", async () => {
  await publishTo(({ attempt }) => (attempt === 1 ? 500 : 200), { webhooks: 30 });
  await recordRun("many-groups");
});

test("a run without search attributes", async () => {
  await publishTo(() => 500);
  await recordRun("without-search-attributes", { searchAttributes: false });
});

test("a group that takes more than three passes", async () => {
  const receiver = await publishTo(() => 500);
  const handle = await startRun("more-than-three-passes", { lingers: true, pumpMs: 5_000 });
  // The second event fails first when the first one has had its second retry.
  await receiver.until((received) => received.length >= 3);
  await cluster.publisher.publish(1);
  await storeEnded("more-than-three-passes", handle);
});

test("a run that waits for a retry", async () => {
  await publishTo(failingOnce(RETRY_AFTER_S.long));
  const handle = await startRun("waiting-for-a-retry");
  await untilStep(handle, "wait for a retry");
  await store("waiting-for-a-retry", handle);
  await handle.terminate();
});

test("a lingering run that a later one took over, and the later one until its time", async () => {
  const earlier = await startRun("lingering-superseded", { lingers: true, pumpMs: 60_000 });
  await untilPumps(earlier, 1);
  const receiver = await publishTo(({ attempt }) => (attempt === 1 ? 503 : 200));
  await receiver.until((received) => received.length === 2);
  const later = await startRun("lingering-until-its-time", { lingers: true, pumpMs: 3_000 });
  await Promise.all([earlier.result(), later.result()]);
  await store("lingering-superseded", earlier);
  await store("lingering-until-its-time", later);
});

test("a lingering run that gives a pump to a worker that starts", async () => {
  const handle = await startRun("worker-that-joined", { lingers: true, pumpMs: 120_000 });
  await untilPumps(handle, 1);
  await haveWorkers(2);
  await untilPumps(handle, 2);
  const later = await startRun("after-joined");
  await Promise.all([handle.result(), later.result()]);
  await store("worker-that-joined", handle);
});

test("a run that skips a worker that takes no pump", async () => {
  const absent = await addWorker(cluster.db, {
    name: "absent/1",
    taskQueue: "worker-absent",
    leaseMs: 60_000,
  });
  await publishTo(() => 200);
  await recordRun("worker-that-was-skipped");
  await removeWorker(cluster.db, absent);
});

test("a run one of whose pumps is lost", async () => {
  const answer = Promise.withResolvers<number>();
  const receiver = await publishTo(() => answer.promise);
  const handle = await startRun("pump-lost");
  await expect.poll(() => receiver.received.length).toBe(1);
  await killWorker();
  await haveWorkers(1);
  answer.resolve(200);
  await storeEnded("pump-lost", handle);
});

test("a lingering run all of whose pumps are lost", async () => {
  const handle = await startRun("all-pumps-lost-lingering", LONG_ASKS);
  await untilPumps(handle, 1);
  await killWorker();
  await untilStep(handle, "deliverPending lost by heartbeat");
  await haveWorkers(1);
  await untilPumps(handle, 1);
  await publishTo(() => 200);
  const later = await startRun("after-lost");
  await Promise.all([handle.result(), later.result()]);
  await store("all-pumps-lost-lingering", handle);
});

test("a lingering run whose worker is replaced", async () => {
  const handle = await startRun("worker-that-was-replaced", LONG_ASKS);
  await untilPumps(handle, 1);
  await haveWorkers(0);
  await haveWorkers(1);
  await untilPumps(handle, 1);
  const later = await startRun("after-replaced");
  await Promise.all([handle.result(), later.result()]);
  await store("worker-that-was-replaced", handle);
});

test.each([
  { shape: "retry-pass-lost", losses: 1 },
  { shape: "three-retry-passes-lost", losses: 3 },
])("$shape: a run whose retries lose their worker $losses times", async ({ shape, losses }) => {
  let isLost = false;
  const never = new Promise<number>(() => {});
  const receiver = await publishTo(({ attempt }) => {
    if (attempt === 1) return 500;
    return isLost ? 200 : never;
  });
  const handle = await startRun(shape);
  for (let loss = 1; loss <= losses; loss += 1) {
    await expect.poll(() => receiver.received.length, { timeout: 60_000 }).toBe(loss + 1);
    isLost = loss === losses;
    await killWorker();
    await haveWorkers(1);
  }
  await storeEnded(shape, handle);
});

test("runs that continue as new", async () => {
  await publishTo(() => 500);
  const handle = await startRun("continued-as-new", { continueAsNewAfter: 1 });
  await handle.result();
  let runId: string | null | undefined = handle.firstExecutionRunId;
  for (let n = 1; runId; n += 1) {
    const execution: WorkflowHandle = client.workflow.getHandle(handle.workflowId, runId);
    await store(`continued-as-new-${n}`, execution);
    const { events }: History = await execution.fetchHistory();
    runId = events?.at(-1)?.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId;
  }
});

test("a run cancelled while a pump waits for a response", async () => {
  const answer = Promise.withResolvers<number>();
  const receiver = await publishTo(() => answer.promise);
  const handle = await startRun("cancelled-amid-a-pump");
  await expect.poll(() => receiver.received.length).toBe(1);
  await handle.cancel();
  const requested = async () =>
    (await handle.fetchHistory()).events?.some((event) => event.activityTaskCancelRequestedEventAttributes);
  await expect.poll(requested).toBe(true);
  answer.resolve(200);
  await expect(handle.result()).rejects.toThrow(/cancelled/i);
  await store("cancelled-amid-a-pump", handle);
});

test("a run cancelled while it waits for a retry", async () => {
  await publishTo(failingOnce(RETRY_AFTER_S.long));
  const handle = await startRun("cancelled-amid-a-wait");
  await untilStep(handle, "wait for a retry");
  await handle.cancel();
  await expect(handle.result()).rejects.toThrow(/cancelled/i);
  await store("cancelled-amid-a-wait", handle);
});

test("the retention", async () => {
  const schedule = client.schedule.getHandle(names.retentionScheduleId);
  await schedule.trigger();
  const started = async () => (await schedule.describe()).info.recentActions.length;
  await expect.poll(started).toBeGreaterThan(0);
  const [recent] = (await schedule.describe()).info.recentActions;
  const { workflowId } = (recent as { action: { workflow: { workflowId: string } } }).action.workflow;
  const handle = client.workflow.getHandle(workflowId);
  await storeEnded("retention", handle);
});

test("a run whose pump ends while another webhook waits for its retry", async () => {
  const { handle, fail } = await startWaitingRun("asked-after-pumps", RETRY_AFTER_S.short);
  fail();
  await storeEnded("asked-after-pumps", handle);
});

test("a run that expects late failures after a pump while another webhook waits for its retry", async () => {
  const { handle, fail, untilRetried } = await startWaitingRun("late-failure", RETRY_AFTER_S.long);
  const { raw } = await handle.describe();
  const pump = raw.pendingActivities?.find(({ activityType }) => activityType?.name === "deliverPending");
  // For the run, the pump has ended. Its worker learns this with a later heartbeat.
  const { workflowId, firstExecutionRunId: runId } = handle as WorkflowHandleWithFirstExecutionRunId;
  await client.activity.fail({ workflowId, runId, activityId: pump?.activityId as string }, "lost");
  await untilStep(handle, "failed deliverPending");
  fail();
  await untilRetried();
  await makeDue();
  await storeEnded("late-failure", handle);
});

test("a run that wakes a group for the retry of a webhook that joins it", async () => {
  const { handle, fail } = await startWaitingRun("woken-earlier", RETRY_AFTER_S.short);
  // As in a run with more failing webhooks than groups.
  await cluster.db.raw(
    `insert into run_groups (run_id, webhook_id, group_number)
      select g.run_id, w.id, g.group_number from run_groups g join webhooks w on w.id <> g.webhook_id`,
  );
  fail();
  await storeEnded("woken-earlier", handle);
});

test("a run with a group that has used its activities while another webhook waits for its retry", async () => {
  const early = await cluster.receiver(failingOnce(RETRY_AFTER_S.long));
  await cluster.register(early.url);
  const limited = await cluster.receiver(failingOnce(3));
  const id = await cluster.register(limited.url);
  await cluster.publisher.publish(1);
  const handle = await startRun("used-activities");
  await untilStep(handle, "wait for a retry", 2);
  const webhook = () => cluster.db("webhooks").where({ id });
  // Each pass ends after its time without a token.
  await webhook().update({ rate_limit: 1, rate_tokens: -3_600, rate_at: new Date() });
  await untilStep(handle, "failed retryDeliveries", ACTIVITIES_PER_ASK - 1);
  await makeDue();
  await untilStep(handle, "failed retryDeliveries", ACTIVITIES_PER_ASK);
  await webhook().update({ rate_limit: null });
  await storeEnded("used-activities", handle);
});

/** Starts a replay of a delivered delivery. */
async function startReplay({ isPaused }: { isPaused: boolean }) {
  const receiver = await cluster.receiver(() => 200);
  const webhookId = await cluster.register(receiver.url);
  await cluster.publisher.publish(1);
  const run = await startRun(`before-replay-${isPaused ? "paused" : "resumed"}`);
  await run.result();
  if (isPaused) await cluster.db("webhooks").where({ id: webhookId }).update({ paused: new Date() });
  const replays = createClient(ReplayService, keyedTransport(cluster.api.grpcPort, cluster.adminKey));
  const filter = { webhookId, states: [DeliveryState.DELIVERED] };
  const { replay } = await replays.startReplay({ what: { case: "resend", value: filter } });
  const started = async () => (await cluster.db("replays").first("run_id"))?.run_id;
  await expect.poll(started).toEqual(expect.any(String));
  return client.workflow.getHandle(`${names.replayPrefix}${replay?.id}`);
}

test("a replay", async () => {
  const handle = await startReplay({ isPaused: false });
  await storeEnded("replay", handle);
});

test("a cancelled replay", async () => {
  const handle = await startReplay({ isPaused: true });
  const isRunning = async () => (await handle.describe()).raw.pendingActivities?.[0]?.lastStartedTime;
  await expect.poll(isRunning).toBeTruthy();
  await handle.cancel();
  await expect(handle.result()).rejects.toThrow(/cancelled/i);
  await store("replay-cancelled", handle);
});

test("every shape is stored", () => {
  expect(recorded.sort()).toEqual(Object.keys(SHAPES).sort());
});
