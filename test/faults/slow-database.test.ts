import { setTimeout as wait } from "node:timers/promises";
import { Code, createClient } from "@connectrpc/connect";
import { afterEach, expect, test } from "vitest";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { openDatabase, rows } from "../../src/db/database.ts";
import { type DatabaseGateway, startDatabaseGateway } from "../support/database-gateway.ts";
import { failure } from "../support/failure.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import type { ServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { until } from "../support/wait.ts";
import { activityFailures } from "./activity-failures.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { type Ledger, reconcile } from "./ledger.ts";
import { checkAttempts, outcomes, untilAllFinal } from "./parts.ts";
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

/** Pumps work while it hangs, and what a busy machine keeps waiting is not taken for dead. */
const LINGERING = { DISPATCH_ON_PUBLISH: "true", DISPATCH_INTERVAL: "5s", HEARTBEAT_TIMEOUT: "10s" };

let cluster: Cluster | undefined;
let gateway: DatabaseGateway | undefined;

afterEach(async () => {
  gateway?.resume();
  gateway?.delay(0);
  await cluster?.end();
  await gateway?.close();
});

/** A cluster whose processes reach their PostgreSQL by way of a gateway; `cluster.db` does not. */
async function start(settings: Record<string, string> = {}): Promise<[Cluster, DatabaseGateway]> {
  cluster = await startCluster(async ({ databaseUrl }) => {
    gateway = await startDatabaseGateway(databaseUrl);
    return { DATABASE_URL: gateway.url, ...settings };
  });
  return [cluster, gateway as DatabaseGateway];
}

async function readiness({ httpPort }: ServiceProcess): Promise<number> {
  return (await fetch(`http://127.0.0.1:${httpPort}/readyz`)).status;
}

/** What a caller over gRPC is told. */
async function publishOnce({ api, adminKey }: Cluster): Promise<Code | undefined> {
  const client = createClient(EventService, keyedTransport(api.grpcPort, adminKey));
  const refused = await failure(client.publishEvent(orderEvent(), { timeoutMs: DEADLINE_MS }));
  return refused?.code;
}

/** The status that a caller over HTTP gets. */
async function post({ api, adminKey }: Cluster, path: string, body: object): Promise<number> {
  const response = await fetch(`http://127.0.0.1:${api.httpPort}${path}`, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Service-Key": adminKey },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(DEADLINE_MS),
  });
  return response.status;
}

const requests = (ledgers: readonly Ledger[]) => ledgers.flatMap(({ entries }) => entries);

/** Deliveries with requests that no attempt is recorded for: those that may be repeated, by id. */
async function inDoubt({ db }: Cluster, ledgers: readonly Ledger[]): Promise<Set<string>> {
  const recorded = await rows<{ id: string; n: number }>(
    db,
    "select delivery_id as id, count(*)::int as n from all_attempts group by 1",
  );
  const left = new Map(recorded.map(({ id, n }) => [id, n]));
  const doubtful = new Set<string>();
  for (const { deliveryId } of requests(ledgers)) {
    const n = left.get(deliveryId) ?? 0;
    if (n === 0) doubtful.add(deliveryId);
    else left.set(deliveryId, n - 1);
  }
  return doubtful;
}

const exitCodes = (processes: readonly ServiceProcess[]) =>
  processes.map(({ process: { exitCode } }) => exitCode);

test.runIf(FULL_SIZE)(
  "a database that hangs: callers are told UNAVAILABLE, nothing fails for it, and everything is delivered later",
  async () => {
    const [cluster, gateway] = await start(LINGERING);
    const processes = [cluster.api, await cluster.startWorker(), await cluster.startWorker()];
    const healthy = await cluster.ledger(ANSWER_MS);
    const recovering = await cluster.ledger(ANSWER_MS, (_path, nth) => (nth === 1 ? 503 : 200));
    const ledgers = [healthy, recovering];
    await cluster.register(healthy.url);
    const retried = await cluster.register(recovering.url);
    const publishing = cluster.publisher.publish(EVENTS);
    // Retries are under way too.
    await until(() => recovering.entries.length > EVENTS / 4);

    gateway.hang();
    const hungAt = Date.now();
    expect(await Promise.all([publishOnce(cluster), publishOnce(cluster)])).toEqual([
      Code.Unavailable,
      Code.Unavailable,
    ]);
    expect(await post(cluster, "/webhook.v1.EventService/PublishEvent", {})).toBe(503);
    expect(await post(cluster, "/api/webhook", { process: 1, url: "https://receiver.example" })).toBe(503);
    expect(await Promise.all(processes.map(readiness))).toEqual([503, 503, 503]);
    const doubtful = await inDoubt(cluster, ledgers);
    // The time itself is what is tested.
    await wait(HANG_MS - (Date.now() - hungAt));
    expect(requests(ledgers).filter(({ at }) => at > hungAt + PROMISED_MS)).toEqual([]);
    expect(await post(cluster, "/webhook.v1.EventService/PublishEvent", {})).toBe(503);
    expect(await Promise.all(processes.map(readiness))).toEqual([503, 503, 503]);
    expect(exitCodes(processes)).toEqual([null, null, null]);
    gateway.resume();
    const resumedAt = Date.now();

    await publishing;
    await untilAllFinal(cluster.db);
    const endedAfter = (Date.now() - resumedAt) / 1_000;
    await checkAttempts(cluster.db);
    const events = (await rows(cluster.db, "select from events")).length;
    // A call that was refused may have been stored all the same.
    expect(events).toBeGreaterThanOrEqual(cluster.publisher.published());
    const deliveries = await rows<{ id: string; state: string; attempts: number; retried: boolean }>(
      cluster.db,
      "select id, state, attempts, webhook_id = :retried::bigint as retried from all_deliveries",
      { retried },
    );
    expect(deliveries).toHaveLength(2 * events);
    const unexpected = deliveries.filter(({ id, state, attempts, retried }) => {
      if (state !== "delivered") return true;
      // Where the request that failed was in doubt and is repeated, the repeat succeeds.
      return attempts !== (retried ? 2 : 1) && !(attempts === 1 && doubtful.has(id));
    });
    expect(unexpected).toEqual([]);
    const { repeats, invented } = await reconcile(cluster.db, ledgers);
    expect(invented).toBe(0);
    expect(repeats.filter(({ deliveryId }) => !doubtful.has(deliveryId))).toEqual([]);
    expect(repeats.length).toBeLessThanOrEqual(doubtful.size);
    expect(await activityFailures(cluster)).toEqual([]);
    await until(async () => (await Promise.all(processes.map(readiness))).every((status) => status === 200));
    expect(exitCodes(processes)).toEqual([null, null, null]);
    tell(
      `hung for ${HANG_MS / 1_000} s: ${doubtful.size} requests in doubt, ${repeats.length} repeated; ` +
        `all ${events} events delivered ${endedAfter.toFixed(1)} s after`,
    );
  },
);

test("a database that is 50 ms away in each direction: nothing is sent twice, and a pause takes effect within a second", async () => {
  // Each webhook gets little at a time, so that much waits when it is paused.
  const [cluster, gateway] = await start({ DELIVERY_MAX_PER_WEBHOOK: "4" });
  gateway.delay(DELAY_MS);
  const distant = openDatabase(gateway.url, { max: 1 });
  await rows(distant, "select 1");
  const asked = performance.now();
  await rows(distant, "select 1");
  expect(performance.now() - asked).toBeGreaterThanOrEqual(2 * DELAY_MS - 5);
  await distant.destroy();

  const healthy = await cluster.ledger(ANSWER_MS);
  const recovering = await cluster.ledger(ANSWER_MS, (_path, nth) => (nth === 1 ? 503 : 200));
  // Its first requests wait for the pause.
  const pause = Promise.withResolvers<number>();
  const paused = await cluster.ledger(4 * ANSWER_MS, () => pause.promise);
  const ledgers = [healthy, recovering, paused];
  const ids: bigint[] = [];
  for (const { url } of ledgers) ids.push(await cluster.register(url));
  await cluster.publisher.publish(SLOW_EVENTS);
  const worker = await cluster.startWorker();
  const leases = () => rows(cluster.db, "select id from workers");
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

  await untilAllFinal(cluster.db);
  await checkAttempts(cluster.db);
  expect(await outcomes(cluster.db)).toEqual([
    { state: "delivered", attempts: 1, n: 2 * SLOW_EVENTS },
    { state: "delivered", attempts: 2, n: SLOW_EVENTS },
  ]);
  const { repeats, invented } = await reconcile(cluster.db, ledgers);
  expect({ requests: requests(ledgers).length, repeats, invented }).toEqual({
    requests: 4 * SLOW_EVENTS,
    repeats: [],
    invented: 0,
  });
  expect(await leases()).toEqual(leasesBefore);
  expect(await activityFailures(cluster)).toEqual([]);
  expect(worker.process.exitCode).toBeNull();
  tell(`50 ms per packet: the last request ${last - answeredAt} ms after the pause was answered`);
});
