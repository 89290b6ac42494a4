import { expect, test } from "vitest";
import { type DatabaseGateway, startDatabaseGateway } from "../support/database-gateway.ts";
import { until } from "../support/wait.ts";
import { useCluster } from "./cluster.ts";
import { checkAttempts, handleOfRun, holders, outcomes, removeAll, untilAllFinal } from "./parts.ts";

/** Two workers hold fewer for a receiver that does not answer; the rest is for others. */
const MAX_EVENTS = 100;

let gateway: DatabaseGateway;
// Only workers that start and what is published trigger runs. A receiver answers once a worker has started, which takes long
// on a busy machine.
const cluster = await useCluster(async ({ databaseUrl }) => {
  gateway = await startDatabaseGateway(databaseUrl);
  return {
    DATABASE_URL: gateway.url,
    DISPATCH_ON_PUBLISH: "true",
    DISPATCH_INTERVAL: "1h",
    DELIVERY_TIMEOUT: "60s",
    RETRY_INITIAL_DELAY: "2s",
    RETRY_BACKOFF_COEFFICIENT: "1",
  };
});
const { db, publisher } = cluster;

test("two workers share what is published; when one is killed its claims are others', and a new one joins", async () => {
  await removeAll(db);
  const [first, second] = await cluster.workers(2);
  const answer = Promise.withResolvers<number>();
  const { url, entries } = await cluster.ledger(0, () => answer.promise);
  await cluster.register(url);
  let events = 0;
  const publishUntilHeldBy = async (...pids: number[]) => {
    const all = pids.sort((one, other) => one - other).join();
    while ((await holders(db)).join() !== all) {
      if (events < MAX_EVENTS) await publisher.publish(1);
      events = Math.min(MAX_EVENTS, events + 1);
    }
  };
  await publishUntilHeldBy(first?.pid as number, second?.pid as number);
  await first?.end("SIGKILL");
  const both = await cluster.workers(2);
  await publishUntilHeldBy(...both.map(({ pid }) => pid));
  answer.resolve(200);
  await untilAllFinal(db);
  await checkAttempts(db);
  expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 1, n: events }]);
  expect(new Set(entries.map(({ deliveryId }) => deliveryId)).size).toBe(events);
});

test("a worker that is silent until its pump is lost is given another by the same run, and sends what is published then", async () => {
  await removeAll(db);
  const [worker] = await cluster.workers(1);
  const { url, entries } = await cluster.ledger(0);
  await cluster.register(url);
  await publisher.publish(1);
  await until(() => entries.length === 1);
  const run = await handleOfRun(cluster);
  const pumps = async () => (await run.pending("deliverPending")).length;
  worker?.process.kill("SIGSTOP");
  await until(async () => (await pumps()) === 0);
  worker?.process.kill("SIGCONT");
  await until(async () => (await pumps()) === 1);
  await publisher.publish(1);
  await untilAllFinal(db);
  expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 1, n: 2 }]);
  expect((await run.handle.describe()).status.name).toBe("RUNNING");
});

test("a worker that is killed while its run waits for the database: another one goes on with that run's retries", async () => {
  await removeAll(db);
  const [worker] = await cluster.workers(1);
  const { url } = await cluster.ledger(0, (_path, nth) => (nth <= 2 ? 503 : 200));
  await cluster.register(url);
  await publisher.publish(20);
  await until(async () => (await outcomes(db)).every(({ state }) => state === "retrying"));
  gateway.hang();
  const run = await handleOfRun(cluster, "id in (select run_id from retries)");
  const asks = async () => (await run.pending("listUndelivered")).length > 0;
  // Asked again and again; the answer does not come any more.
  await until(asks);
  await worker?.end("SIGKILL");
  gateway.resume();
  expect(await asks()).toBe(true);
  await cluster.workers(1);
  await untilAllFinal(db);
  expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 3, n: 20 }]);
});
