import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { checkAttempts, outcomes, removeAll, temporalClient, untilAllFinal } from "./parts.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

/** Two workers hold fewer for a receiver that does not answer; the rest is for others. */
const MAX_EVENTS = 100;

let cluster: Cluster;

beforeAll(async () => {
  // A run whose pumps are lost asks for workers after a part of its time. A receiver answers once a worker has started, which
  // takes long on a busy machine.
  cluster = await startCluster({
    DISPATCH_ON_PUBLISH: "true",
    DISPATCH_INTERVAL: "1h",
    DELIVERY_TIMEOUT: "60s",
  });
});
afterAll(() => cluster?.end());

test("two workers share what is published; when one is killed its claims are others', and a new one joins", async () => {
  const [first, second] = await Promise.all([cluster.startWorker(), cluster.startWorker()]);
  const answer = Promise.withResolvers<number>();
  const { url, received } = await cluster.receiver(() => answer.promise);
  await cluster.register(url);
  let events = 0;
  /** The processes whose claims hold, by their ids. */
  const holders = async () => {
    const found = await rows<{ pid: number }>(
      cluster.db,
      `select distinct split_part(w.name, '/', 2)::int as pid from queue q join workers w on w.id = q.claimed_by`,
    );
    return found.map(({ pid }) => pid).sort((a, b) => a - b);
  };
  const publishUntilHeldBy = async (...processes: ServiceProcess[]) => {
    const pids = processes.map(({ pid }) => pid).sort((a, b) => a - b);
    while ((await holders()).join() !== pids.join()) {
      if (events < MAX_EVENTS) await cluster.publisher.publish(1);
      events = Math.min(MAX_EVENTS, events + 1);
    }
  };
  await publishUntilHeldBy(first, second);
  await first.end("SIGKILL");
  const third = await cluster.startWorker();
  await publishUntilHeldBy(second, third);
  answer.resolve(200);
  await untilAllFinal(cluster.db);
  await checkAttempts(cluster.db);
  expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 1, n: events }]);
  expect(new Set(received.map(({ headers }) => headers["x-service-webhook-id"])).size).toBe(events);
  await Promise.all([second, third].map((worker) => worker.end("SIGTERM")));
});

test("a worker that is silent until its pump is lost is given another by the same run, and sends what is published then", async () => {
  await removeAll(cluster.db);
  const worker = await cluster.startWorker();
  const { url, received } = await cluster.receiver(() => 200);
  await cluster.register(url);
  await cluster.publisher.publish(1);
  await expect.poll(() => received.length).toBe(1);
  const [run] = await rows<{ workflow_id: string; first_run_id: string }>(
    cluster.db,
    "select workflow_id, first_run_id from runs order by id desc limit 1",
  );
  const { connection, workflow } = await temporalClient(cluster);
  onTestFinished(() => connection.close());
  const handle = workflow.getHandle(run?.workflow_id as string, run?.first_run_id);
  worker.process.kill("SIGSTOP");
  const pumps = async () => {
    const { raw } = await handle.describe();
    return (raw.pendingActivities ?? []).filter(({ activityType }) => activityType?.name === "deliverPending")
      .length;
  };
  await expect.poll(pumps, { timeout: 60_000 }).toBe(0);
  worker.process.kill("SIGCONT");
  await expect.poll(pumps, { timeout: 60_000 }).toBe(1);
  await cluster.publisher.publish(1);
  await untilAllFinal(cluster.db, 60_000);
  expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 1, n: 2 }]);
  expect((await handle.describe()).status.name).toBe("RUNNING");
});
