import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import type { Ledger } from "./ledger.ts";
import { checkAttempts, outcomes, temporalClient, untilAllFinal } from "./parts.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

/** With four requests at once, what one worker claims takes much longer than Temporal waits for its heartbeats, also on a busy machine. */
const EVENTS = 600;
const AFTERWARDS = 20;
const [ANSWER_MS, AT_ONCE] = [100, 4];

let cluster: Cluster;
let receiver: Ledger;

beforeAll(async () => {
  cluster = await startCluster({ DELIVERY_MAX_PER_WEBHOOK: String(AT_ONCE), HEARTBEAT_TIMEOUT: "3s" });
  receiver = await cluster.ledger(ANSWER_MS);
  await cluster.register(receiver.url);
});
afterAll(() => cluster?.end());

/** The deliveries that a process holds. */
async function claimsOf(pid: number): Promise<number> {
  const [row] = await rows<{ n: number }>(
    cluster.db,
    `select count(*)::int as n from queue q join workers w on w.id = q.claimed_by
      where split_part(w.name, '/', 2) = :pid`,
    { pid: String(pid) },
  );
  return row?.n ?? 0;
}

test("what a worker that is cut off from Temporal had claimed is sent by it or by its successor, and nothing is sent twice", async () => {
  const gateway = await startDatabaseGateway(`tcp://${cluster.temporal.address}`);
  onTestFinished(gateway.close);
  await cluster.publisher.publish(EVENTS);
  const cutOff = await cluster.startWorker({ TEMPORAL_ADDRESS: new URL(gateway.url).host });
  await expect.poll(() => claimsOf(cutOff.pid), { timeout: 60_000 }).toBeGreaterThan(EVENTS / 2);
  gateway.hang();
  const successor = await cluster.startWorker();
  await cluster.publisher.publish(AFTERWARDS);

  // To Temporal, its pump is lost, amid its deliveries.
  const { connection, workflow } = await temporalClient(cluster);
  onTestFinished(() => connection.close());
  const [run] = await rows<{ workflow_id: string; first_run_id: string }>(
    cluster.db,
    "select workflow_id, first_run_id from runs order by id limit 1",
  );
  const history = async () => {
    const handle = workflow.getHandle(run?.workflow_id as string, run?.first_run_id);
    return (await handle.fetchHistory()).events ?? [];
  };
  const lost = async () =>
    (await history()).some(({ activityTaskTimedOutEventAttributes: timedOut }) => timedOut);
  await expect.poll(lost, { timeout: 60_000 }).toBe(true);
  expect(receiver.entries.length).toBeLessThan(EVENTS);

  await untilAllFinal(cluster.db);
  await checkAttempts(cluster.db);
  const all = EVENTS + AFTERWARDS;
  expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 1, n: all }]);
  expect(receiver.entries).toHaveLength(all);
  expect(new Set(receiver.entries.map(({ deliveryId }) => deliveryId)).size).toBe(all);
  expect([cutOff.process.exitCode, successor.process.exitCode]).toEqual([null, null]);
  gateway.resume();
});
