import { Client, Connection } from "@temporalio/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rows } from "../../src/db/database.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import { outcomes, untilAllFinal } from "./parts.ts";

const EVENTS = 2_000;
/** Long enough that neither worker could send everything before the other has begun. */
const ANSWER_MS = 100;
/** A worker that a busy machine keeps waiting is not taken for dead. */
const PATIENT = { HEARTBEAT_TIMEOUT: "30s" };

let cluster: Cluster;
let ledger: Ledger;

beforeAll(async () => {
  cluster = await startCluster();
  ledger = await cluster.ledger(ANSWER_MS);
  await cluster.register(ledger.url);
});
afterAll(() => cluster?.end());

/** Processes that worked on first attempts, by Temporal's histories. */
async function whoDelivered(): Promise<Set<string>> {
  const connection = await Connection.connect({ address: cluster.temporal.address });
  const client = new Client({ connection });
  const identities = new Set<string>();
  const runs = await rows<{ workflow_id: string; first_run_id: string }>(
    cluster.db,
    "select workflow_id, first_run_id from runs where delivered > 0",
  );
  for (const run of runs) {
    const { events } = await client.workflow.getHandle(run.workflow_id, run.first_run_id).fetchHistory();
    for (const { activityTaskStartedEventAttributes: started } of events ?? []) {
      if (started?.identity) identities.add(started.identity);
    }
  }
  await connection.close();
  return identities;
}

test("two workers drain one queue together, and neither sends what the other sends", async () => {
  await Promise.all([cluster.startWorker(PATIENT), cluster.startWorker(PATIENT)]);
  await cluster.publisher.publish(EVENTS);
  await untilAllFinal(cluster.db);
  expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 1, n: EVENTS }]);
  const { repeats, invented } = await reconcile(cluster.db, [ledger]);
  expect({ requests: ledger.entries.length, repeats, invented }).toEqual({
    requests: EVENTS,
    repeats: [],
    invented: 0,
  });
  expect((await whoDelivered()).size).toBe(2);
});
