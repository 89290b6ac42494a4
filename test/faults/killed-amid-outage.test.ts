import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import { type DatabaseGateway, startDatabaseGateway } from "../support/database-gateway.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { outcomes, temporalClient, untilAllFinal } from "./parts.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

const EVENTS = 20;
/** Much shorter than the ten minutes after which Temporal gives up an activity that tells nothing of itself. */
const SETTLED_MS = 180_000;

let cluster: Cluster;
let gateway: DatabaseGateway;

beforeAll(async () => {
  cluster = await startCluster(async ({ databaseUrl }) => {
    gateway = await startDatabaseGateway(databaseUrl);
    return {
      DATABASE_URL: gateway.url,
      // Only workers that start trigger runs.
      DISPATCH_ON_PUBLISH: "true",
      DISPATCH_INTERVAL: "10m",
      RETRY_INITIAL_DELAY: "2s",
      RETRY_BACKOFF_COEFFICIENT: "1",
    };
  });
});
afterAll(async () => {
  gateway?.resume();
  await cluster?.end();
  await gateway?.close();
});

test("a worker that is killed while its run waits for the database: another one goes on with that run's retries", async () => {
  const { connection, workflow } = await temporalClient(cluster);
  onTestFinished(() => connection.close());
  const ledger = await cluster.ledger(0, (_path, nth) => (nth <= 2 ? 503 : 200));
  await cluster.register(ledger.url);
  const worker = await cluster.startWorker();
  await cluster.publisher.publish(EVENTS);
  await expect.poll(() => outcomes(cluster.db)).toEqual([{ state: "retrying", attempts: 1, n: EVENTS }]);
  gateway.hang();
  const [run] = await rows<{ workflow_id: string; first_run_id: string }>(
    cluster.db,
    "select workflow_id, first_run_id from runs where id in (select run_id from retries)",
  );
  const handle = workflow.getHandle(run?.workflow_id as string, run?.first_run_id);
  const asks = async () => {
    const { raw } = await handle.describe();
    return (raw.pendingActivities ?? []).some(({ activityType }) => activityType?.name === "listUndelivered");
  };
  // Asked again and again; the answer does not come any more.
  await expect.poll(asks).toBe(true);
  await worker.end("SIGKILL");
  gateway.resume();
  expect(await asks()).toBe(true);
  await cluster.startWorker();
  await untilAllFinal(cluster.db, SETTLED_MS);
  expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 3, n: EVENTS }]);
});
