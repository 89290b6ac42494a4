import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { rows } from "../../src/db/database.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import type { Ledger } from "./ledger.ts";
import { checkAttempts, outcomes, untilAllFinal } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

/** What an installation has unless it sets something else, but for dispatch at once. */
const AS_INSTALLED = { DISPATCH_ON_PUBLISH: "true", DISPATCH_INTERVAL: "60s", HEARTBEAT_TIMEOUT: "20s" };
/** Events a second. */
const RATE = FULL_SIZE ? 100 : 40;
const WEBHOOKS = 2;
/** How often each change is made. */
const ROUNDS = FULL_SIZE ? 4 : 1;
/** Deliveries before and between the changes. */
const SOME = (FULL_SIZE ? 5 : 1) * RATE * WEBHOOKS;
/** Deliveries after the changes; at full size for longer than a run makes first attempts, so that others follow. */
const AFTERWARDS = FULL_SIZE ? 90 * RATE * WEBHOOKS : SOME;
/** Long enough that a worker that is told to stop has something in flight. */
const ANSWER_MS = 200;
/** What is promised: how long a delivery waits for its request while workers come and go, in milliseconds. */
const WAIT_MS = { beside: 5_000, alone: 20_000 };

let cluster: Cluster;
let ledger: Ledger;

beforeAll(async () => {
  cluster = await startCluster(AS_INSTALLED);
  ledger = await cluster.ledger(ANSWER_MS);
  for (let n = 0; n < WEBHOOKS; n += 1) await cluster.register(`${ledger.url}/${n}`);
});
afterAll(() => cluster?.end());

/** Resolves once so many more deliveries have arrived. */
async function untilMore(deliveries: number): Promise<void> {
  const wanted = ledger.entries.length + deliveries;
  await vi.waitUntil(() => ledger.entries.length >= wanted, { timeout: 200_000, interval: 5 });
}

/** Resolves once each of the workers has been seen to hold deliveries. */
async function untilAllDeliver(workers: readonly ServiceProcess[]): Promise<void> {
  const idle = new Set(workers.map(({ pid }) => pid));
  const holds = async () => {
    const holders = await rows<{ pid: number }>(
      cluster.db,
      "select split_part(name, '/', 2)::int as pid from workers where id in (select claimed_by from queue)",
    );
    for (const { pid } of holders) idle.delete(pid);
    return idle.size === 0;
  };
  await vi.waitUntil(holds, { timeout: 90_000, interval: 5 });
}

/** Publishes steadily while the workers change, and answers the longest wait of a delivery for its first request. */
async function longestWait(change: () => Promise<void>): Promise<number> {
  const before = ledger.entries.length;
  const publishing = cluster.publisher.steadily(RATE);
  for (let round = 0; round < ROUNDS; round += 1) {
    await untilMore(SOME);
    await change();
  }
  await untilMore(AFTERWARDS);
  await publishing.stop();
  await untilAllFinal(cluster.db);
  const waits = ledger.entries.slice(before).map(({ deliveryId, at }) => at - publishedAt(deliveryId));
  return waits.reduce((most, wait) => Math.max(most, wait), 0);
}

/** When its event was published: a delivery's id begins with that time, in milliseconds since 1970. */
function publishedAt(deliveryId: string): number {
  return Number.parseInt(deliveryId.replace("-", "").slice(0, 12), 16);
}

/** Each delivery arrived once, and its first attempt delivered it. */
async function expectEachOnce(): Promise<void> {
  const n = WEBHOOKS * cluster.publisher.published();
  expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 1, n }]);
  expect(new Set(ledger.entries.map(({ deliveryId }) => deliveryId)).size).toBe(n);
  expect(ledger.entries.length).toBe(n);
  await checkAttempts(cluster.db);
}

test("workers that come and go beside one that stays: each delivery arrives once, within 5 s", async () => {
  const first = await cluster.startWorker();
  const longest = await longestWait(async () => {
    const others = await Promise.all([cluster.startWorker(), cluster.startWorker()]);
    await untilAllDeliver([first, ...others]);
    await Promise.all(others.map((worker) => worker.end("SIGTERM")));
  });
  await expectEachOnce();
  tell(`1, 3 and 1 workers, ${ROUNDS} times, ${RATE} events/s: the longest wait was ${longest} ms`);
  expect(longest).toBeLessThan(WAIT_MS.beside);
  await first.end("SIGTERM");
});

/** A worker that stops beside another is in the test above, too. */
const REPLACEMENTS = [
  { how: "before its successor starts", meanwhile: false },
  ...(FULL_SIZE ? [{ how: "while its successor starts", meanwhile: true }] : []),
];

test.each(REPLACEMENTS)(
  "the only worker stops $how: each delivery arrives once, within 20 s",
  async ({ how, meanwhile }) => {
    let worker = await cluster.startWorker();
    const longest = await longestWait(async () => {
      const ended = worker.end("SIGTERM");
      if (!meanwhile) await ended;
      worker = await cluster.startWorker();
      await untilAllDeliver([worker]);
      await ended;
    });
    await expectEachOnce();
    tell(`the only worker stopped ${how}, ${ROUNDS} times: the longest wait was ${longest} ms`);
    expect(longest).toBeLessThan(WAIT_MS.alone);
    await worker.end("SIGTERM");
  },
);
