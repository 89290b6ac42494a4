import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import path from "node:path";
import type { Client, WorkflowHandle } from "@temporalio/client";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import type { Reply } from "../../demo/receiver.ts";
import { addWorker, removeWorker } from "../../src/db/queue/workers.ts";
import { temporalNames } from "../../src/temporal/connection/names.ts";
import { TABLES } from "../db/queue/queue.ts";
import { type OwnCluster, startOwnCluster } from "../faults/cluster.ts";
import { temporalClient } from "../faults/parts.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { assertShape, type History, SHAPES, stepsOf } from "./shapes.ts";
import { HISTORIES, storeHistory } from "./stored-histories.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

// `npm run record-histories`: one test a run, each of which stores the histories of one or more shapes.

const names = temporalNames();
/** Not started by their schedule: each test starts its run. */
const SETTINGS = { DISPATCH_INTERVAL: "24h", HEARTBEAT_TIMEOUT: "2s" };
/** Of a run that lingers and does not ask again before another worker has started. */
const LONG_ASKS = { lingers: true, pumpMs: 120_000, retryInitialDelayMs: 15_000 };

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

/** Starts a run with the schedule's input, changed. */
async function startRun(id: string, input: Record<string, unknown> = {}) {
  const { action } = await client.schedule.getHandle(names.scheduleId).describe();
  const { workflowType, taskQueue, args } = action as {
    workflowType: string;
    taskQueue: string;
    args: object[];
  };
  const workflowId = `${names.scheduleId}-${id}`;
  return client.workflow.start(workflowType, { workflowId, taskQueue, args: [{ ...args[0], ...input }] });
}

async function store(shape: string, handle: WorkflowHandle): Promise<void> {
  const history = await handle.fetchHistory();
  assertShape(shape, history);
  await storeHistory(folder, shape, history);
  recorded.push(shape);
}

/** Runs to the end and stores what happened. */
async function recordRun(shape: string, input: Record<string, unknown> = {}): Promise<void> {
  const handle = await startRun(shape, input);
  await handle.result();
  await store(shape, handle);
}

/** Registers receivers with the reply, one webhook each, and publishes events to them. */
async function publishTo(reply: Reply, { events = 1, webhooks = 1 } = {}) {
  const receiver = await cluster.receiver(reply);
  for (let n = 1; n <= webhooks; n += 1) await cluster.register(`${receiver.url}/${n}`);
  await cluster.publisher.publish(events);
  return receiver;
}

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
  await handle.result();
  await store("more-than-three-passes", handle);
});

test("a run that waits for a retry", async () => {
  const receiver = await publishTo((_, response) => {
    response.writeHead(503, { "retry-after": "60" }).end();
    return undefined;
  });
  const handle = await startRun("waiting-for-a-retry");
  await receiver.until((received) => received.length === 1);
  await expect.poll(async () => stepsOf(await handle.fetchHistory())).toContain("wait for a retry");
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
  await handle.result();
  await store("pump-lost", handle);
});

test("a lingering run all of whose pumps are lost", async () => {
  const handle = await startRun("all-pumps-lost-lingering", LONG_ASKS);
  await untilPumps(handle, 1);
  await killWorker();
  const steps = async () => stepsOf(await handle.fetchHistory());
  await expect.poll(steps).toContain("deliverPending lost by heartbeat");
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
  await handle.result();
  await store(shape, handle);
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
  await publishTo((_, response) => {
    response.writeHead(503, { "retry-after": "60" }).end();
    return undefined;
  });
  const handle = await startRun("cancelled-amid-a-wait");
  await expect.poll(async () => stepsOf(await handle.fetchHistory())).toContain("wait for a retry");
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
  await handle.result();
  await store("retention", handle);
});

test("every shape is stored", () => {
  expect(recorded.sort()).toEqual(Object.keys(SHAPES).sort());
});
