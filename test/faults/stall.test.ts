import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import { checkAttempts, outcomes, untilAllFinal } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

/** Events; each goes to one webhook that is well and to one that always fails. */
const EVENTS = FULL_SIZE ? 300 : 40;
const AFTERWARDS = FULL_SIZE ? 20 : 10;
/** Long enough that a stopped worker leaves requests unanswered; a failing webhook gets few at a time. */
const ANSWER_MS = 25;

let cluster: Cluster;
let stalling: ServiceProcess;
let good: Ledger;
let failing: Ledger;

beforeAll(async () => {
  cluster = await startCluster();
  stalling = await cluster.startWorker();
  good = await cluster.ledger(ANSWER_MS);
  failing = await cluster.ledger(ANSWER_MS, () => 500);
  for (const { url } of [good, failing]) await cluster.register(url);
});
afterAll(() => cluster?.end());

const requests = () => good.entries.length + failing.entries.length;

interface Attempt {
  delivery_id: string;
  number: number;
  started: Date;
  duration_ms: number;
  status: number | null;
}

function attempts(): Promise<Attempt[]> {
  return rows(
    cluster.db,
    "select delivery_id, number, started, duration_ms, status from all_attempts order by delivery_id, number",
  );
}

test("a worker that stalls while another takes over overwrites nothing, loses nothing, and works on afterwards", async () => {
  await cluster.publisher.publish(EVENTS);
  await vi.waitUntil(() => requests() >= EVENTS / 4, { timeout: 200_000, interval: 5 });
  stalling.process.kill("SIGSTOP");
  const stalledAt = Date.now();
  const other = await cluster.startWorker();
  // What the stalled one had claimed is taken over and tried without it.
  const claimed = await rows<{ id: string; attempts: number }>(
    cluster.db,
    "select id, attempts from all_deliveries where claimed_by is not null",
  );
  expect(claimed.length).toBeGreaterThan(0);
  const triedSince = async () => {
    const tried = await rows<{ id: string; attempts: number }>(
      cluster.db,
      "select id, attempts from all_deliveries",
    );
    const now = new Map(tried.map(({ id, attempts }) => [id, attempts]));
    return claimed.every(({ id, attempts }) => (now.get(id) ?? 0) > attempts);
  };
  await vi.waitUntil(triedSince, { timeout: 200_000, interval: 100 });
  const before = await attempts();
  const resumedAt = Date.now();
  stalling.process.kill("SIGCONT");

  // Its late results are behind it once it has worked on for others to see: alone.
  await other.end("SIGTERM");
  await cluster.publisher.publish(AFTERWARDS);
  await untilAllFinal(cluster.db);
  expect(stalling.process.exitCode).toBeNull();

  await checkAttempts(cluster.db);
  expect(await outcomes(cluster.db)).toEqual([
    { state: "delivered", attempts: 1, n: EVENTS + AFTERWARDS },
    { state: "failed", attempts: 4, n: EVENTS + AFTERWARDS },
  ]);
  const after = await attempts();
  const known = new Set(before.map((attempt) => JSON.stringify(attempt)));
  const kept = after.filter((attempt) => known.has(JSON.stringify(attempt)));
  expect(kept).toHaveLength(before.length);
  const late = after.filter(
    ({ started, duration_ms }) =>
      started.getTime() < stalledAt && started.getTime() + duration_ms > resumedAt,
  );
  expect(late).toEqual([]);

  const { repeats, invented } = await reconcile(cluster.db, [good, failing]);
  expect(invented).toBe(0);
  // What the stalled worker had sent and not recorded was sent again by the other, under the same number.
  expect(repeats.length).toBeGreaterThan(0);
  expect(repeats.length).toBeLessThanOrEqual(200);
  tell(
    `stalled for ${((resumedAt - stalledAt) / 1_000).toFixed(1)} s: ${repeats.length} requests repeated, ` +
      `${after.length} attempts recorded, ${late.length} of them late`,
  );
});
