import { expect, onTestFinished, test } from "vitest";
import type { ServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { type Cluster, startCluster } from "./cluster.ts";
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

/** When its event was published: a delivery's id begins with that time, in milliseconds since 1970. */
const publishedAt = (deliveryId: string) => Number.parseInt(deliveryId.replace("-", "").slice(0, 12), 16);

/** Resolves once each of the workers has been seen to hold deliveries. */
async function untilAllDeliver({ db }: Cluster, ...workers: ServiceProcess[]): Promise<void> {
  const idle = new Set(workers.map(({ pid }) => pid));
  await until(async () => {
    for (const pid of await holders(db)) idle.delete(pid);
    return idle.size === 0;
  });
}

/** Changes the workers, of which one runs before and after; answers the one that runs then. */
type Change = (cluster: Cluster, worker: ServiceProcess) => Promise<ServiceProcess>;

const replaced =
  (waits: boolean): Change =>
  async (cluster, worker) => {
    const ended = worker.end("SIGTERM");
    if (waits) await ended;
    const successor = await cluster.startWorker();
    await untilAllDeliver(cluster, successor);
    await ended;
    return successor;
  };

// on-publish.test.ts and workers.test.ts have workers that share and hand over; here the time of each wait counts.
test.runIf(FULL_SIZE).each<[string, number, Change]>([
  [
    "others come and go beside one that stays",
    5_000,
    async (cluster, worker) => {
      await untilAllDeliver(cluster, worker, ...(await cluster.workers(2)));
      await cluster.workers(0);
      return worker;
    },
  ],
  ["the only one stops before its successor starts", 20_000, replaced(true)],
  ["the only one stops while its successor starts", 20_000, replaced(false)],
])("of workers, %s, and each delivery arrives once, within %i ms", async (what, withinMs, change) => {
  const cluster = await startCluster(AS_INSTALLED);
  onTestFinished(() => cluster.end());
  const { entries, url } = await cluster.ledger(ANSWER_MS);
  for (let n = 0; n < WEBHOOKS; n += 1) await cluster.register(`${url}/${n}`);
  const untilMore = (deliveries: number) => {
    const wanted = entries.length + deliveries;
    return until(() => entries.length >= wanted);
  };
  let worker = await cluster.startWorker();
  const publishing = cluster.publisher.steadily(RATE);
  for (let round = 0; round < ROUNDS; round += 1) {
    await untilMore(SOME);
    worker = await change(cluster, worker);
  }
  await untilMore(AFTERWARDS);
  await publishing.stop();
  await untilAllFinal(cluster.db);
  const n = WEBHOOKS * cluster.publisher.published();
  expect(await outcomes(cluster.db)).toEqual([{ state: "delivered", attempts: 1, n }]);
  expect([entries.length, new Set(entries.map(({ deliveryId }) => deliveryId)).size]).toEqual([n, n]);
  await checkAttempts(cluster.db);
  const longest = entries.reduce(
    (most, { deliveryId, at }) => Math.max(most, at - publishedAt(deliveryId)),
    0,
  );
  tell(`${what}, ${ROUNDS} times, ${RATE} events/s: the longest wait was ${longest} ms`);
  expect(longest).toBeLessThan(withinMs);
});
