import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import type { Ledger } from "./ledger.ts";
import { checkAttempts, holders, outcomes, untilAllFinal } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

/** What an installation has unless it sets something else, but for dispatch at once. */
const AS_INSTALLED = { DISPATCH_ON_PUBLISH: "true", DISPATCH_INTERVAL: "60s", HEARTBEAT_TIMEOUT: "20s" };
/** Events a second. */
const RATE = 100;
const WEBHOOKS = 2;
/** How often each change is made. */
const ROUNDS = 4;
/** Deliveries before and between the changes. */
const SOME = 5 * RATE * WEBHOOKS;
/** Deliveries after the changes: for longer than a run makes first attempts, so that others follow. */
const AFTERWARDS = 90 * RATE * WEBHOOKS;
/** Long enough that a worker that is told to stop has something in flight. */
const ANSWER_MS = 200;

// workers.test.ts has workers that share and hand over in every run of the tests; here the time of each wait counts.
describe.runIf(FULL_SIZE)("while workers come and go", () => {
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
    await until(() => ledger.entries.length >= wanted);
  }

  /** Resolves once each of the workers has been seen to hold deliveries. */
  async function untilAllDeliver(workers: readonly ServiceProcess[]): Promise<void> {
    const idle = new Set(workers.map(({ pid }) => pid));
    await until(async () => {
      for (const pid of await holders(cluster.db)) idle.delete(pid);
      return idle.size === 0;
    });
  }

  /** When its event was published: a delivery's id begins with that time, in milliseconds since 1970. */
  const publishedAt = (deliveryId: string) => Number.parseInt(deliveryId.replace("-", "").slice(0, 12), 16);

  /** Publishes steadily while the workers change; each delivery arrives once, and waits for its request no longer than this. */
  async function expectArrivals(what: string, withinMs: number, change: () => Promise<void>): Promise<void> {
    const before = ledger.entries.length;
    const publishing = cluster.publisher.steadily(RATE);
    for (let round = 0; round < ROUNDS; round += 1) {
      await untilMore(SOME);
      await change();
    }
    await untilMore(AFTERWARDS);
    await publishing.stop();
    await untilAllFinal(cluster.db);
    const n = WEBHOOKS * cluster.publisher.published();
    expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 1, n }]);
    expect(new Set(ledger.entries.map(({ deliveryId }) => deliveryId)).size).toBe(n);
    expect(ledger.entries.length).toBe(n);
    await checkAttempts(cluster.db);
    const waits = ledger.entries.slice(before).map(({ deliveryId, at }) => at - publishedAt(deliveryId));
    const longest = waits.reduce((most, wait) => Math.max(most, wait), 0);
    tell(`${what}, ${ROUNDS} times, ${RATE} events/s: the longest wait was ${longest} ms`);
    expect(longest).toBeLessThan(withinMs);
  }

  test("beside one that stays, each delivery arrives once, within 5 s", async () => {
    const [first] = await cluster.workers(1);
    await expectArrivals("1, 3 and 1 workers", 5_000, async () => {
      await untilAllDeliver(await cluster.workers(3));
      await cluster.workers(1);
    });
    await first?.end("SIGTERM");
  });

  test.each([
    { how: "before its successor starts", meanwhile: false },
    { how: "while its successor starts", meanwhile: true },
  ])("and the only one stops $how, each delivery arrives once, within 20 s", async ({ how, meanwhile }) => {
    let worker = await cluster.startWorker();
    await expectArrivals(`the only worker stopped ${how}`, 20_000, async () => {
      const ended = worker.end("SIGTERM");
      if (!meanwhile) await ended;
      worker = await cluster.startWorker();
      await untilAllDeliver([worker]);
      await ended;
    });
    await worker.end("SIGTERM");
  });
});
