import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import { outcomes, untilAllFinal } from "./parts.ts";
import { FULL_SIZE } from "./scale.ts";
import { whoDelivered } from "./who-delivered.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

/** More than one statement claims. */
const EVENTS = FULL_SIZE ? 2_000 : 1_200;
const ANSWER_MS = 20;
/** A worker that a busy machine keeps waiting is not taken for dead. */
const PATIENT = { HEARTBEAT_TIMEOUT: "30s" };

let cluster: Cluster;
let ledger: Ledger;
/** Without it, one worker could send everything before the other has begun. */
const haveBothClaimed = Promise.withResolvers<number>();

beforeAll(async () => {
  cluster = await startCluster();
  ledger = await cluster.ledger(ANSWER_MS, () => haveBothClaimed.promise);
  await cluster.register(ledger.url);
});
afterAll(() => cluster?.end());

test("two workers drain one queue together, and neither sends what the other sends", async () => {
  await Promise.all([cluster.startWorker(PATIENT), cluster.startWorker(PATIENT)]);
  await cluster.publisher.publish(EVENTS);
  const claimants = () =>
    rows(cluster.db, "select distinct claimed_by from queue where claimed_by is not null");
  await expect.poll(claimants, { timeout: 60_000 }).toHaveLength(2);
  haveBothClaimed.resolve(200);
  await untilAllFinal(cluster.db);
  expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 1, n: EVENTS }]);
  const { repeats, invented } = await reconcile(cluster.db, [ledger]);
  expect({ requests: ledger.entries.length, repeats, invented }).toEqual({
    requests: EVENTS,
    repeats: [],
    invented: 0,
  });
  // The last pumps tell what they did a moment later.
  await expect.poll(async () => (await whoDelivered(cluster)).size).toBe(2);
});
