import { setTimeout as wait } from "node:timers/promises";
import { tsToMs } from "@temporalio/common/lib/time.js";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { ReceivedRequest, Receiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { checkAttempts, outcomes, removeAll, temporalClient, untilAllFinal } from "./parts.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

const DELIVERIES = 40;
/** The failure of an activity whose worker was stopped. */
const STOPPED = "the worker was stopped amid the pass";
/** A worker that a busy machine keeps waiting is not taken for dead. */
const PATIENT = { HEARTBEAT_TIMEOUT: "10s" };

let cluster: Cluster;

beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster?.end());

/** Requests that were not a delivery's first. */
const retries = (received: ReceivedRequest[]) => received.filter(({ attempt }) => attempt > 1).length;

/** A webhook with deliveries that fail, all or so many attempts of each, slowly enough that a pass can be interrupted. */
async function failingWebhook(failures = Number.POSITIVE_INFINITY): Promise<Receiver> {
  const receiver = await cluster.receiver(async ({ attempt }) => {
    await wait(25);
    return attempt > failures ? 200 : 500;
  });
  await removeAll(cluster.db);
  await cluster.register(`${receiver.url}/`);
  await cluster.publisher.publish(DELIVERIES);
  return receiver;
}

/** The activities `retryDeliveries` of open runs, with their runs. */
async function pendingRetries() {
  const client = await temporalClient(cluster);
  const open = await rows<{ workflow: string; run: string }>(
    cluster.db,
    "select workflow_id as workflow, first_run_id as run from runs where closed is null",
  );
  const pending = await Promise.all(
    open.map(async ({ workflow, run }) => {
      const { raw } = await client.workflow.getHandle(workflow, run).describe();
      const activities = raw.pendingActivities ?? [];
      return activities
        .filter(({ activityType }) => activityType?.name === "retryDeliveries")
        .map((activity) => ({ ...activity, run }));
    }),
  );
  await client.connection.close();
  return pending.flat();
}

describe("a delivery costs no retry", () => {
  test("when its worker is killed three times amid retryDeliveries", async () => {
    let worker = await cluster.startWorker();
    const receiver = await failingWebhook();
    for (let kill = 1; kill <= 3; kill += 1) {
      const before = retries(receiver.received);
      await receiver.until((received) => retries(received) >= before + 8);
      await worker.end("SIGKILL");
      worker = await cluster.startWorker();
    }
    await untilAllFinal(cluster.db);
    await checkAttempts(cluster.db);
    expect(await outcomes(cluster.db)).toEqual([{ state: "failed", attempts: 4, n: DELIVERIES }]);
    const interrupted = await rows(cluster.db, "select 1 from all_deliveries where reason is not null");
    expect(interrupted).toEqual([]);
    await worker.end("SIGTERM");
  });

  test("when its worker is killed amid retryDeliveries, and the rest is retried when it was due", async () => {
    // A retry that is put off as if it had failed again comes more than three minutes later.
    const times = { RETRY_INITIAL_DELAY: "2s", RETRY_BACKOFF_COEFFICIENT: "100" };
    const worker = await cluster.startWorker(times);
    const receiver = await failingWebhook(1);
    await receiver.until((received) => retries(received) >= 8);
    await worker.end("SIGKILL");
    const left = await rows<{ id: string }>(
      cluster.db,
      "select id, run_id from retries where attempts = 1 order by id",
    );
    expect(left.length).toBeGreaterThan(8);
    const next = await cluster.startWorker(times);
    await untilAllFinal(cluster.db, 60_000);
    await checkAttempts(cluster.db);
    expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 2, n: DELIVERIES }]);
    // By the same run: another one would make them once the lease of this one is over.
    const ids = left.map(({ id }) => id);
    const made = await rows(
      cluster.db,
      "select id, run_id from deliveries where id = any(:ids::uuid[]) order by id",
      { ids },
    );
    expect(made).toEqual(left);
    await next.end("SIGTERM");
  });

  test("when its worker is stopped by SIGTERM amid retryDeliveries, which begins again a second later, and nothing is sent twice", async () => {
    const worker = await cluster.startWorker(PATIENT);
    const receiver = await failingWebhook();
    await receiver.until((received) => retries(received) >= 8);
    expect(await worker.end("SIGTERM")).toBe(0);
    // Of one run or two: attempts that fail one after another have pauses, so that another run, a second later, may have started
    // amid the first attempts. It has the retries of the rest.
    const pending = await pendingRetries();
    expect(new Set(pending.map(({ run }) => run)).size).toBe(pending.length);
    const failures = pending.map(({ lastFailure }) => lastFailure?.message);
    expect(failures).toContainEqual(expect.stringContaining(STOPPED));
    const stopped = pending.filter(({ lastFailure }) => lastFailure?.message?.includes(STOPPED));
    for (const { lastAttemptCompleteTime: ended, scheduledTime: next } of stopped) {
      // Not at once: other workers may be stopping too.
      expect(tsToMs(next) - tsToMs(ended)).toBeGreaterThanOrEqual(1_000);
    }
    await cluster.startWorker(PATIENT);
    await untilAllFinal(cluster.db);
    await checkAttempts(cluster.db);
    expect(await outcomes(cluster.db)).toEqual([{ state: "failed", attempts: 4, n: DELIVERIES }]);
    expect(receiver.received.length).toBe(4 * DELIVERIES);
  });
});
