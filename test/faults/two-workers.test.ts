import { Client, Connection } from "@temporalio/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rows } from "../../src/db/database.ts";
import { type ServiceProcess, startServiceProcess } from "../../src/dev/service-process.ts";
import { type Ledger, reconcile, startLedger } from "./ledger.ts";
import { type FaultParts, outcomes, register, startFaultParts, untilAllFinal } from "./parts.ts";
import { createPublisher } from "./publisher.ts";

const EVENTS = 2_000;
/** Long enough that neither worker could send everything before the other has begun. */
const ANSWER_MS = 100;

let parts: FaultParts;
let api: ServiceProcess;
let workers: ServiceProcess[] = [];
let ledger: Ledger;

beforeAll(async () => {
  parts = await startFaultParts();
  api = await startServiceProcess({ ...parts.environment, ROLE: "api" });
  ledger = await startLedger(parts.certificate, ANSWER_MS);
  await register(api.grpcPort, parts.adminKey, ledger.url);
}, 90_000);

afterAll(async () => {
  await Promise.all([...workers, api].map((service) => service?.end("SIGTERM")));
  await ledger?.close();
  await parts?.end();
}, 60_000);

/** Processes that worked on first attempts, by Temporal's histories. */
async function whoDelivered(): Promise<Set<string>> {
  const connection = await Connection.connect({ address: parts.temporal.address });
  const client = new Client({ connection });
  const identities = new Set<string>();
  const runs = await rows<{ workflow_id: string; first_run_id: string }>(
    parts.db,
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

test("two workers drain one queue together, and neither sends what the other sends", {
  timeout: 90_000,
}, async () => {
  workers = await Promise.all(
    [1, 2].map(() => startServiceProcess({ ...parts.environment, ROLE: "worker" })),
  );
  await createPublisher(() => api.grpcPort, parts.adminKey).publish(EVENTS);
  await untilAllFinal(parts.db, 60_000);
  expect(await outcomes(parts.db)).toEqual([{ state: "delivered", attempts: 1, n: EVENTS }]);
  const { repeats, invented } = await reconcile(parts.db, [ledger]);
  expect({ requests: ledger.entries.length, repeats, invented }).toEqual({
    requests: EVENTS,
    repeats: [],
    invented: 0,
  });
  expect((await whoDelivered()).size).toBe(2);
});
