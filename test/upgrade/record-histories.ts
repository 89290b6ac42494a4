import { existsSync } from "node:fs";
import type { Client, WorkflowHandle } from "@temporalio/client";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Reply } from "../../demo/receiver.ts";
import { temporalNames } from "../../src/temporal/names.ts";
import { type OwnCluster, startOwnCluster } from "../faults/cluster.ts";
import { temporalClient } from "../faults/parts.ts";
import { TABLES } from "../queue/queue.ts";
import { replay, startRun as startRunOf, untilStep } from "../support/dispatch-runs.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { SHAPES } from "./shapes.ts";
import { RECORDINGS, recorded } from "./stored-histories.ts";

// `npm run record-histories`: these tests store the histories of one or more shapes each.

beforeAll(() => {
  if (existsSync(RECORDINGS))
    throw new Error(
      `${RECORDINGS} exists. Histories of a release are never recorded again: set the version of the coming release ` +
        "in package.json, or remove the folder if that release has not been made yet",
    );
});

describe("runs", async () => void (await import("../workflows/runs.test.ts")));
describe("waiting runs", async () => void (await import("../workflows/waiting-runs.test.ts")));
describe("replays", async () => void (await import("../workflows/replays.test.ts")));
describe("deliveries", async () => void (await import("../workflows/delivery.test.ts")));

describe("runs of several processes", () => {
  const { scheduleId } = temporalNames();
  /** Of a run that lingers and does not ask again before another worker has started. */
  const LONG_ASKS = { lingers: true, pumpMs: 120_000, retryInitialDelayMs: 15_000 };

  let cluster: OwnCluster;
  let client: Client;
  const workers: ServiceProcess[] = [];
  beforeAll(async () => {
    cluster = await startOwnCluster({ DISPATCH_INTERVAL: "24h", HEARTBEAT_TIMEOUT: "2s" });
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
    await until(async () => (await cluster.db("workers")).length === count);
  }

  /** Kills the worker that has lived longest, and starts another one. */
  async function replaceKilledWorker(): Promise<void> {
    await workers.shift()?.end("SIGKILL");
    await haveWorkers(1);
  }

  const startRun = (input: Record<string, unknown> = {}) =>
    startRunOf({ temporal: client, scheduleId }, input);

  /** Waits until the run has ended, and stores what happened. */
  async function storeEnded(shape: string, run: WorkflowHandle): Promise<void> {
    await run.result();
    await replay(run, shape);
  }

  /** Registers receivers with the reply, one webhook each, and publishes events to them. */
  async function publishTo(reply: Reply, { events = 1, webhooks = 1 } = {}) {
    const receiver = await cluster.receiver(reply);
    for (let n = 1; n <= webhooks; n += 1) await cluster.register(`${receiver.url}/${n}`);
    await cluster.publisher.publish(events);
    return receiver;
  }

  /** Waits until the run has started a pump on each of so many workers. */
  async function untilPumps(run: WorkflowHandle, count: number): Promise<void> {
    const running = async () =>
      ((await run.describe()).raw.pendingActivities ?? []).filter(
        // One that no worker has taken has not started.
        ({ activityType, lastStartedTime }) => activityType?.name === "deliverPending" && lastStartedTime,
      );
    await expect.poll(running).toHaveLength(count);
  }

  /** Lets a later run take over the lingering one, and stores what happened in that. */
  async function storeSuperseded(shape: string, run: WorkflowHandle): Promise<void> {
    const later = await startRun();
    await later.result();
    await storeEnded(shape, run);
  }

  test.each([
    { shape: "delivered", reply: () => 200, amount: { events: 10, webhooks: 3 }, workers: 2 },
    { shape: "many-groups", reply: ({ attempt }) => (attempt === 1 ? 500 : 200), amount: { webhooks: 30 } },
    { shape: "without-search-attributes", reply: () => 500, input: { searchAttributes: false } },
  ] satisfies { shape: string; reply: Reply; amount?: object; workers?: number; input?: object }[])(
    "$shape",
    async ({ shape, reply, amount, workers: count = 1, input }) => {
      await haveWorkers(count);
      await publishTo(reply, amount);
      await storeEnded(shape, await startRun(input));
    },
  );

  test("a group that takes more than three passes", async () => {
    const receiver = await publishTo(() => 500);
    const run = await startRun({ lingers: true, pumpMs: 5_000 });
    // The second event fails first when the first one has had its second retry.
    await receiver.until((received) => received.length >= 3);
    await cluster.publisher.publish(1);
    await storeEnded("more-than-three-passes", run);
  });

  test("a lingering run that gives a pump to a worker that starts", async () => {
    const run = await startRun({ lingers: true, pumpMs: 120_000 });
    await untilPumps(run, 1);
    await haveWorkers(2);
    await untilPumps(run, 2);
    await storeSuperseded("worker-that-joined", run);
  });

  test("a run one of whose pumps is lost", async () => {
    const answer = Promise.withResolvers<number>();
    const receiver = await publishTo(() => answer.promise);
    const run = await startRun();
    await expect.poll(() => receiver.received.length).toBe(1);
    await replaceKilledWorker();
    answer.resolve(200);
    await storeEnded("pump-lost", run);
  });

  test("a lingering run all of whose pumps are lost", async () => {
    const run = await startRun(LONG_ASKS);
    await untilPumps(run, 1);
    await workers.shift()?.end("SIGKILL");
    await untilStep(run, "deliverPending lost by heartbeat");
    await haveWorkers(1);
    await untilPumps(run, 1);
    await publishTo(() => 200);
    await storeSuperseded("all-pumps-lost-lingering", run);
  });

  test("a lingering run whose worker is replaced", async () => {
    const run = await startRun(LONG_ASKS);
    await untilPumps(run, 1);
    await haveWorkers(0);
    await haveWorkers(1);
    await untilPumps(run, 1);
    await storeSuperseded("worker-that-was-replaced", run);
  });

  test.each([
    { shape: "retry-pass-lost", losses: 1 },
    { shape: "three-retry-passes-lost", losses: 3 },
  ])("a run whose retries lose their worker $losses times", async ({ shape, losses }) => {
    let isLost = false;
    const never = new Promise<number>(() => {});
    const receiver = await publishTo(({ attempt }) => {
      if (attempt === 1) return 500;
      return isLost ? 200 : never;
    });
    const run = await startRun();
    for (let loss = 1; loss <= losses; loss += 1) {
      await expect.poll(() => receiver.received.length).toBe(loss + 1);
      isLost = loss === losses;
      await replaceKilledWorker();
    }
    await storeEnded(shape, run);
  });
});

test("every shape is stored", () => {
  expect(recorded.toSorted()).toEqual(Object.keys(SHAPES).sort());
});
