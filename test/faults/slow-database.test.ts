import { setTimeout as wait } from "node:timers/promises";
import { Code, createClient } from "@connectrpc/connect";
import { afterAll, afterEach, expect, onTestFinished, test } from "vitest";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { type DatabaseGateway, startDatabaseGateway } from "../support/database-gateway.ts";
import { failure } from "../support/failure.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { keyedTransport } from "../support/test-service.ts";
import { until } from "../support/wait.ts";
import { useCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import { checkAttempts, handleOfRun, outcomes, removeAll, untilAllFinal, untilReady } from "./parts.ts";
import { FULL_SIZE, tell } from "./scale.ts";

/**
 * How long the database does not answer, in milliseconds: statements are given up after 60 s. Shorter ones are tested with
 * the API and with the pool.
 */
const HANG_MS = 65_000;
/** What is published before and while the database hangs. */
const EVENTS = 2_000;
const SLOW_EVENTS = FULL_SIZE ? 600 : 60;
/** How long receivers take to answer, in milliseconds. */
const ANSWER_MS = 25;
/** What is added to each packet in each direction, in milliseconds. */
const DELAY_MS = 50;
/** What the service promises: no POST starts later than this after a pause was answered, in milliseconds. */
const PROMISED_MS = 1_000;
/** A deadline as callers have it, in milliseconds. */
const DEADLINE_MS = 5_000;

let gateway: DatabaseGateway;
/** All processes reach their PostgreSQL by way of the gateway; `cluster.db` does not. */
const cluster = await useCluster(async ({ databaseUrl }) => {
  gateway = await startDatabaseGateway(databaseUrl);
  return {
    DATABASE_URL: gateway.url,
    // Pumps work while it hangs, and what a busy machine keeps waiting is not taken for dead.
    DISPATCH_ON_PUBLISH: "true",
    DISPATCH_INTERVAL: "1h",
    HEARTBEAT_TIMEOUT: "10s",
    RETRY_INITIAL_DELAY: "2s",
    RETRY_BACKOFF_COEFFICIENT: "1",
    // Each webhook gets little at a time, so that much waits when it is paused.
    DELIVERY_MAX_PER_WEBHOOK: "4",
  };
});
const { db, publisher } = cluster;
afterAll(() => gateway.close());
afterEach(async () => {
  gateway.resume();
  gateway.delay(0);
  await removeAll(db);
});

/** What a caller over gRPC is told. */
async function publishOnce(): Promise<Code | undefined> {
  const client = createClient(EventService, keyedTransport(cluster.api.grpcPort, cluster.adminKey));
  const refused = await failure(client.publishEvent(orderEvent(), { timeoutMs: DEADLINE_MS }));
  return refused?.code;
}

/** The status that a caller over HTTP gets. */
async function post(path: string, body: object): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${cluster.api.httpPort}${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Service-Key": cluster.adminKey },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(DEADLINE_MS),
  });
  return response.status;
}

const requests = (ledgers: readonly Ledger[]) => ledgers.flatMap(({ entries }) => entries);

test("a database that is 50 ms away in each direction: nothing is sent twice, and a pause takes effect within a second", async () => {
  gateway.delay(DELAY_MS);
  const healthy = await cluster.ledger(ANSWER_MS);
  const recovering = await cluster.ledger(ANSWER_MS, (_path, nth) => (nth === 1 ? 503 : 200));
  // Its first requests wait for the pause.
  const pause = Promise.withResolvers<number>();
  const paused = await cluster.ledger(8 * ANSWER_MS, () => pause.promise);
  const ledgers = [healthy, recovering, paused];
  const ids: bigint[] = [];
  for (const { url } of ledgers) ids.push(await cluster.register(url));
  await publisher.publish(SLOW_EVENTS);
  const [worker] = await cluster.workers(1);
  const leases = () => rows(db, "select id from workers");
  const leasesBefore = await leases();
  expect(leasesBefore).toHaveLength(1);
  await until(() => paused.entries.length > 0);
  const webhooks = createClient(WebhookService, keyedTransport(cluster.api.grpcPort, cluster.adminKey));
  const webhookId = ids[2] as bigint;
  await webhooks.pauseWebhook({ webhookId });
  const answeredAt = Date.now();
  pause.resolve(200);
  await until(() => healthy.entries.length === SLOW_EVENTS);
  // A second more, in which none may come.
  await wait(Math.max(0, answeredAt + 2 * PROMISED_MS - Date.now()));
  const last = Math.max(...paused.entries.map(({ at }) => at));
  expect(paused.entries.length).toBeLessThan(SLOW_EVENTS);
  if (FULL_SIZE) expect(last - answeredAt).toBeLessThan(PROMISED_MS);
  await webhooks.resumeWebhook({ webhookId });

  await untilAllFinal(db);
  await checkAttempts(db);
  expect(await outcomes(db)).toEqual([
    { state: "delivered", attempts: 1, n: 2 * SLOW_EVENTS },
    { state: "delivered", attempts: 2, n: SLOW_EVENTS },
  ]);
  const { repeats, invented } = await reconcile(db, ledgers);
  expect([requests(ledgers).length, repeats, invented]).toEqual([4 * SLOW_EVENTS, [], 0]);
  expect(await leases()).toEqual(leasesBefore);
  expect(worker?.process.exitCode).toBeNull();
  tell(`50 ms per packet: the last request ${last - answeredAt} ms after the pause was answered`);
});

test.runIf(FULL_SIZE)(
  "a database that hangs: callers are told UNAVAILABLE, nothing fails for it, and everything is delivered later",
  async () => {
    await cluster.workers(0);
    const often = { DISPATCH_INTERVAL: "5s", DELIVERY_MAX_PER_WEBHOOK: "400" };
    const workers = [await cluster.startWorker(often), await cluster.startWorker(often)];
    onTestFinished(async () => void (await Promise.all(workers.map((worker) => worker.end("SIGTERM")))));
    const processes = [cluster.api, ...workers];
    const healthy = await cluster.ledger(ANSWER_MS);
    const recovering = await cluster.ledger(ANSWER_MS, (_path, nth) => (nth === 1 ? 503 : 200));
    const ledgers = [healthy, recovering];
    await cluster.register(healthy.url);
    const retried = await cluster.register(recovering.url);
    const publishing = publisher.publish(EVENTS);
    // Retries are under way too.
    await until(() => recovering.entries.length > EVENTS / 4);

    gateway.hang();
    const hungAt = Date.now();
    expect(await Promise.all([publishOnce(), publishOnce()])).toEqual([Code.Unavailable, Code.Unavailable]);
    expect(await post("/webhook.v1.EventService/PublishEvent", {})).toBe(503);
    expect(await post("/api/webhook", { process: 1, url: "https://receiver.example" })).toBe(503);
    await untilReady(processes, 503);
    // The time itself is what is tested.
    await wait(HANG_MS - (Date.now() - hungAt));
    expect(requests(ledgers).filter(({ at }) => at > hungAt + PROMISED_MS)).toEqual([]);
    expect(await post("/webhook.v1.EventService/PublishEvent", {})).toBe(503);
    await untilReady(processes, 503);
    gateway.resume();
    const resumedAt = Date.now();

    await publishing;
    await untilAllFinal(db);
    const endedAfter = (Date.now() - resumedAt) / 1_000;
    await checkAttempts(db);
    const events = (await rows(db, "select from events")).length;
    // A call that was refused may have been stored all the same.
    expect(events).toBeGreaterThanOrEqual(EVENTS);
    const wrong = await rows(
      db,
      `select id, state, attempts from all_deliveries
        where state <> 'delivered' or attempts > case when webhook_id = :retried::bigint then 2 else 1 end`,
      { retried },
    );
    expect(wrong).toEqual([]);
    expect(await db("all_deliveries").count()).toEqual([{ count: BigInt(2 * events) }]);
    // What the two workers could not record in time, 200 each at most, is sent again.
    const { repeats, invented } = await reconcile(db, ledgers);
    expect(invented).toBe(0);
    expect(repeats.length).toBeLessThanOrEqual(2 * 200);
    await untilReady(processes, 200);
    expect(processes.map(({ process: { exitCode } }) => exitCode)).toEqual([null, null, null]);
    tell(
      `hung for ${HANG_MS / 1_000} s: ${repeats.length} repeated; ${events} events delivered ${endedAfter.toFixed(1)} s after`,
    );
  },
);

test("after a worker is killed while its run waits for the database, another worker continues that run's retries", async () => {
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
  const retries = await rows(db, "select id, run_id from retries order by id");
  await worker?.end("SIGKILL");
  gateway.resume();
  expect(await asks()).toBe(true);
  await cluster.workers(1);
  await untilAllFinal(db);
  expect(await outcomes(db)).toEqual([{ state: "delivered", attempts: 3, n: 20 }]);
  expect(await rows(db, "select id, run_id from deliveries order by id")).toEqual(retries);
});
