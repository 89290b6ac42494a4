import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import type { Ledger } from "./ledger.ts";
import { checkAttempts, outcomes, untilAllFinal } from "./parts.ts";
import { FULL_SIZE } from "./scale.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

const PER_SECOND = 40;
/** Long enough for several jumps amid deliveries. */
const REQUESTS = FULL_SIZE ? 500 : 300;
/** Longer than any attempt takes, and shorter than any jump. */
const MOST_MS = 60_000;

let cluster: Cluster;
let good: Ledger;
let recovering: Ledger;

beforeAll(async () => {
  cluster = await startCluster();
  good = await cluster.ledger(20);
  recovering = await cluster.ledger(20, (_path, nth) => (nth === 1 ? 503 : 200));
  for (const { url } of [good, recovering]) await cluster.register(url);
});
afterAll(() => cluster?.end());

test("a worker whose clock jumps by hours and days sends each delivery once, retries when it is due, and measures attempts right", async () => {
  const preload = new URL("jumping-clock.ts", import.meta.url).href;
  const worker = await cluster.startWorker({ NODE_OPTIONS: `--import=${preload}` });
  const steady = cluster.publisher.steadily(PER_SECOND);
  await expect
    .poll(() => good.entries.length + recovering.entries.length, { timeout: MOST_MS })
    .toBeGreaterThan(REQUESTS);
  await steady.stop();
  const events = cluster.publisher.published();
  await untilAllFinal(cluster.db, MOST_MS);
  expect(worker.process.exitCode).toBeNull();
  expect(await outcomes(cluster.db)).toEqual([
    { state: "delivered", attempts: 1, n: events },
    { state: "delivered", attempts: 2, n: events },
  ]);
  await checkAttempts(cluster.db);
  expect([good.entries.length, recovering.entries.length]).toEqual([events, 2 * events]);
  const [durations] = await rows<{ least: number; most: number }>(
    cluster.db,
    "select min(duration_ms)::int as least, max(duration_ms)::int as most from all_attempts",
  );
  expect(durations?.least).toBeGreaterThanOrEqual(0);
  expect(durations?.most).toBeLessThan(MOST_MS);
  // The jumps did happen.
  const [starts] = await rows<{ hours: number }>(
    cluster.db,
    "select extract(epoch from max(started) - min(started)) / 3600 as hours from all_attempts",
  );
  expect(Number(starts?.hours)).toBeGreaterThan(24);
});
