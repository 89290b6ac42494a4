import { randomBytes, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { timestampMs } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { tsToMs } from "@temporalio/common/lib/time.js";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Receiver } from "../../demo/receiver.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { readConfig } from "../../src/config/config.ts";
import { startService } from "../../src/service.ts";
import { type TemporalNames, temporalNames } from "../../src/temporal/connection/names.ts";
import { createTestDatabase } from "../support/database.ts";
import { part } from "../support/parts.ts";
import { keyedTransport, startTestService, type TestService, WOKEN } from "../support/test-service.ts";

const SECRET_KEY = randomBytes(32).toString("base64");
/** How long pumps linger beyond the interval, in milliseconds. */
const LINGER_MS = 15_000;
const EACH_SECOND = { DISPATCH_INTERVAL: "1s", DISPATCH_ON_PUBLISH: "true" };

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ ...WOKEN, SECRET_KEY });
});
afterAll(() => service.stop());
afterEach(() => service.removeWebhooks());

/** Begins before the other tests and is looked at after them, because its pumps take so long to end. */
let paused: Awaited<ReturnType<typeof pauseBeforeRetry>>;
beforeAll(async () => {
  paused = await pauseBeforeRetry();
});
afterAll(() => paused?.own.stop());

/** A service whose schedule is paused after the first attempt of a delivery that has a retry. */
async function pauseBeforeRetry() {
  const own = await startTestService(EACH_SECOND);
  const recovering = await own.receiver(({ attempt }, response) => {
    if (attempt > 1) return 200;
    // Later than the last pump ends.
    response.writeHead(503, { "retry-after": String(LINGER_MS / 1_000 + 5) }).end();
    return undefined;
  });
  await own.register(`${recovering.url}/`);
  const { eventId } = await own.publish();
  await recovering.until((received) => received.length === 1);
  const schedule = own.temporal.schedule.getHandle(own.scheduleId);
  await schedule.pause();
  return { own, eventId, schedule, at: Date.now() };
}

const order = (orderId: bigint) => ({
  idempotencyKey: randomUUID(),
  userId: "tenant-1",
  data: {
    case: "orderDispatched" as const,
    value: { orderId, orderNumber: `SO-${orderId}`, dispatchedAt: { seconds: 1_790_000_000n } },
  },
});

/** A receiver that answers nothing until it is let go. */
async function holding(): Promise<Receiver & { letGo(): void }> {
  const answer = Promise.withResolvers<number>();
  onTestFinished(() => answer.resolve(200));
  const receiver = await service.receiver(() => answer.promise);
  return Object.assign(receiver, { letGo: () => answer.resolve(200) });
}

test("an event arrives once it is published, and does not wait for the minute", async () => {
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  const { eventId } = await service.publish();
  await receiver.until((received) => received.length === 1);
  expect((await service.untilFinal(eventId))[0]?.state).toBe(DeliveryState.DELIVERED);
});

test("200 events published at once arrive, each once, by the run that the worker's start has triggered", async () => {
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  await Promise.all(Array.from({ length: 200 }, (_, n) => service.publish(BigInt(n + 1))));
  await receiver.until((received) => received.length >= 200);
  expect(new Set(receiver.received.map(({ headers }) => headers["x-service-webhook-id"])).size).toBe(200);
  expect(receiver.received).toHaveLength(200);
  expect(await service.db("runs").pluck("closed")).toEqual([null]);
});

test("publishing starts no workflow: there is the schedule's run and no other", async () => {
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  await service.publish();
  await receiver.until((received) => received.length === 1);
  const prefix = service.scheduleId.replace("dispatch-pending-deliveries", "");
  const types = async () => {
    const found: string[] = [];
    const query = `WorkflowId STARTS_WITH "${prefix}"`;
    for await (const { type, workflowId } of service.temporal.workflow.list({ query })) {
      expect(workflowId).toMatch(/dispatch-pending-deliveries-\d{4}-\d\d-\d\dT/);
      found.push(type);
    }
    return found;
  };
  // What Temporal lists follows what happened a little later.
  await expect.poll(types).toEqual(["dispatchPendingDeliveries"]);
});

test("an event published while a pump waits for a slow receiver does not wait for it", async () => {
  const slow = await holding();
  const fast = await service.receiver();
  await service.register(`${slow.url}/`);
  const first = await service.publish(1n);
  await expect.poll(() => slow.received.length).toBe(1);
  await service.register(`${fast.url}/`, { process: 2 });
  await service.publishDocument();
  await fast.until((received) => received.length === 1);
  const [waiting] = (await service.deliveries.listDeliveries({ eventId: first.eventId })).deliveries;
  expect(waiting?.state).toBe(DeliveryState.DELIVERING);
  slow.letGo();
  await service.untilFinal(first.eventId);
});

test("retries are made when they are due while the run's pumps go on, and later events are not held up by them", async () => {
  const letGo = Promise.withResolvers<void>();
  onTestFinished(() => letGo.resolve());
  const recovering = await service.receiver(async ({ attempt }) => {
    // The retries last until the later event has arrived elsewhere.
    if (attempt === 2) await letGo.promise;
    return attempt < 4 ? 503 : 200;
  });
  const good = await service.receiver();
  await service.register(`${recovering.url}/`);
  const { eventId } = await service.publish(1n);
  await expect.poll(() => recovering.received.length).toBe(2);
  await service.register(`${good.url}/`);
  const later = await service.publish(2n);
  await good.until((received) => received.length === 1);
  letGo.resolve();
  const [delivery] = await service.untilFinal(eventId);
  expect(delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 4 });
  await service.untilFinal(later.eventId);
  expect(recovering.received).toHaveLength(8);
  // The run that made the first attempts makes the retries, too.
  expect(await service.db("runs").pluck("closed")).toEqual([null]);
});

test("a delivery is retried when it is due while an earlier one of its webhook waits for its next retry", async () => {
  const receiver = await service.receiver(({ attempt, body }, response) => {
    if (attempt === 1) return 503;
    if (body.includes("SO-2")) return 200;
    response.writeHead(503, { "retry-after": "120" }).end();
    return undefined;
  });
  await service.register(`${receiver.url}/`);
  await service.publish(1n);
  await receiver.until((received) => received.length === 2);
  // The pass that made the retry has ended, and the run is kept for the next one.
  const waits = () => service.db("runs").whereRaw("lease_until > now() + interval '150 seconds'");
  await expect.poll(waits).toHaveLength(1);
  const { eventId } = await service.publish(2n);
  expect((await service.untilFinal(eventId))[0]).toMatchObject({ attemptCount: 2 });
});

/** The names under which a test's service knows its schedules and queues. */
const namesOf = ({ scheduleId }: TestService): TemporalNames =>
  temporalNames(scheduleId.replace("dispatch-pending-deliveries", ""));

/** Starts one more worker of the test's service; answers what ends it. */
async function startWorker(of: TestService): Promise<() => Promise<void>> {
  const environment = { TEMPORAL_ADDRESS: (await part("temporal")).address };
  const { database } = (await of.db.raw("select current_database() as database")).rows[0];
  const url = new URL((await part("postgres")).url);
  url.pathname = database;
  const config = readConfig({
    ...environment,
    ...WOKEN,
    ROLE: "worker",
    HOST: "127.0.0.1",
    HTTP_PORT: "0",
    LOG_LEVEL: "silent",
    DATABASE_URL: url.href,
    SECRET_KEY,
    HEARTBEAT_TIMEOUT: "20s",
    DELIVERY_ALLOWED_NETWORKS: "127.0.0.0/8",
  });
  const code = await readFile((await part("workflows")).bundle, "utf8");
  const worker = await startService(config, { environment, names: namesOf(of), workflowBundle: { code } });
  onTestFinished(() => worker.stop());
  return () => worker.stop();
}

describe("a worker that starts later", () => {
  /** So many go to a receiver of which nothing is known, and as many wait for it in a worker. */
  const WINDOW = 4;

  test("joins the run that goes on, and takes what the others have no room for", async () => {
    const receiver = await holding();
    await service.register(`${receiver.url}/`);
    const claims = async () => {
      const claimed = await service.db("queue").whereNotNull("claimed_by").pluck("claimed_by");
      return { claims: claimed.length, workers: new Set(claimed).size };
    };
    await Promise.all(Array.from({ length: 2 * WINDOW }, (_, n) => service.publish(BigInt(n + 1))));
    await expect.poll(claims).toEqual({ claims: 2 * WINDOW, workers: 1 });
    const later = await Promise.all(Array.from({ length: 2 * WINDOW }, () => service.publish(99n)));
    await expect.poll(() => receiver.received.length).toBe(WINDOW);

    // Paused, so that the worker's start triggers no run: it is given a pump by the one that goes on.
    const schedule = service.temporal.schedule.getHandle(service.scheduleId);
    await schedule.pause();
    onTestFinished(() => schedule.unpause());
    await startWorker(service);
    await expect.poll(() => receiver.received.length).toBe(2 * WINDOW);
    expect(await claims()).toEqual({ claims: 4 * WINDOW, workers: 2 });
    expect(await service.db("runs").pluck("closed")).toEqual([null]);
    receiver.letGo();
    for (const { eventId } of later)
      expect((await service.untilFinal(eventId))[0]?.state).toBe(DeliveryState.DELIVERED);
    expect(receiver.received).toHaveLength(4 * WINDOW);
  });
});

describe("with an interval of a second", () => {
  let short: TestService;
  beforeAll(async () => {
    short = await startTestService(EACH_SECOND);
  });
  afterAll(() => short.stop());

  test("a run without failures closes when the next one's pumps have taken over", async () => {
    const receiver = await short.receiver();
    await short.register(`${receiver.url}/`);
    const { eventId } = await short.publish();
    const [delivery] = await short.untilFinal(eventId);
    const { run } = await short.deliveries.getDelivery({ deliveryId: delivery?.id ?? "" });
    const handle = short.temporal.workflow.getHandle(run?.workflowId ?? "", run?.runId);
    expect(await handle.result()).toMatchObject({ failed: 0, putBack: 0 });
    const [row] = await short.db("runs").where({ first_run_id: run?.runId });
    expect(row.closed).not.toBeNull();
    await short.publish();
    await receiver.until((received) => received.length === 2);
  });
});

test("while the schedule is paused a worker's start triggers no run, and nothing that is published is sent", async () => {
  const paused = await startTestService({ DISPATCH_INTERVAL: "24h", SECRET_KEY });
  onTestFinished(() => paused.stop());
  const receiver = await paused.receiver();
  await paused.register(`${receiver.url}/`);
  const schedule = paused.temporal.schedule.getHandle(paused.scheduleId);
  await schedule.pause();
  await startWorker(paused);
  const { eventId } = await paused.publish();
  // Rounds of other calls: time enough for a run to have been made.
  for (let i = 0; i < 200; i += 1) await paused.deliveries.listDeliveries({ eventId });
  expect(await paused.db("runs")).toEqual([]);
  expect(receiver.received).toHaveLength(0);
  await schedule.unpause();
  await schedule.trigger();
  await paused.untilFinal(eventId);
  expect(receiver.received).toHaveLength(1);
});

test("a pump that fails is started again by its run, long before the next one", async () => {
  const own = await startTestService(WOKEN);
  onTestFinished(() => own.stop());
  const receiver = await own.receiver();
  await own.register(`${receiver.url}/`);
  await own.publish(1n);
  await receiver.until((received) => received.length === 1);
  const [run] = await own.db("runs");
  const handle = own.temporal.workflow.getHandle(run.workflow_id, run.first_run_id);
  const failures = async () => {
    const { events } = await handle.fetchHistory();
    return (events ?? []).filter(({ activityTaskFailedEventAttributes: failed }) => failed).length;
  };
  await own.db.raw("alter table queue rename to queue_away");
  await expect.poll(failures).toBeGreaterThan(0);
  await own.db.raw("alter table queue_away rename to queue");
  await own.publish(2n);
  await receiver.until((received) => received.length === 2);
  expect(await own.db("runs").pluck("closed")).toEqual([null]);
});

test("publishing works while Temporal is away, and the API says it is ready", async () => {
  const database = await createTestDatabase();
  const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
  const environment = { TEMPORAL_ADDRESS: "127.0.0.1:1" };
  const config = readConfig({
    ...environment,
    ROLE: "api",
    HOST: "127.0.0.1",
    HTTP_PORT: "0",
    GRPC_PORT: "0",
    LOG_LEVEL: "silent",
    DATABASE_URL: database.url,
    SECRET_KEY,
    ADMIN_KEY: adminKey,
    DISPATCH_ON_PUBLISH: "true",
  });
  const api = await startService(config, { environment, names: temporalNames(`${randomUUID()}-`) });
  try {
    await fetch(`${api.url}/api/webhook?process=1&url=https://receiver.example/`, {
      method: "POST",
      headers: { "X-Service-Key": adminKey },
    });
    const events = createClient(EventService, keyedTransport(api.grpcPort as number, adminKey));
    for (let i = 0; i < 20; i += 1) {
      expect(await events.publishEvent(order(BigInt(i + 1)))).toMatchObject({ deliveriesQueued: 1 });
    }
    expect((await fetch(`${api.url}/readyz`)).status).toBe(200);
  } finally {
    await api.stop();
    await database.drop();
  }
});

test("DISPATCH_ON_PUBLISH is off by default, and an API process needs no Temporal for it", () => {
  expect(readConfig({}).dispatch.onPublish).toBe(false);
  const api = {
    ROLE: "api",
    DATABASE_URL: "postgres://u:p@db/webhook",
    SECRET_KEY: randomBytes(32).toString("hex"),
    DISPATCH_ON_PUBLISH: "true",
  };
  expect(readConfig(api)).toMatchObject({ dispatch: { onPublish: true }, temporal: { external: false } });
});

test("once the schedule is paused, pumps end within the interval and 15 seconds, and open runs go on with their retries", async () => {
  const { own, eventId, schedule, at } = paused;
  const receiver = await own.receiver();
  await own.register(`${receiver.url}/`, { process: 2 });
  /** Pumps that run, and the time at which the last one ended, in milliseconds since 1970. */
  const pumps = async () => {
    let [running, lastEnd] = [0, 0];
    const { info } = await schedule.describe();
    for (const { action } of info.recentActions) {
      const { workflowId, firstExecutionRunId } = action.workflow;
      const { events } = await own.temporal.workflow
        .getHandle(workflowId, firstExecutionRunId)
        .fetchHistory();
      const started = new Set<string>();
      for (const { eventId: id, eventTime, ...event } of events ?? []) {
        if (event.activityTaskScheduledEventAttributes?.activityType?.name === "deliverPending")
          started.add(String(id));
        const ended =
          event.activityTaskCompletedEventAttributes ??
          event.activityTaskFailedEventAttributes ??
          event.activityTaskTimedOutEventAttributes;
        if (started.delete(String(ended?.scheduledEventId))) lastEnd = Math.max(lastEnd, tsToMs(eventTime));
      }
      running += started.size;
    }
    return { running, lastEnd };
  };
  await expect.poll(async () => (await pumps()).running, { timeout: 2 * LINGER_MS }).toBe(0);
  const { lastEnd } = await pumps();
  expect(lastEnd).toBeGreaterThan(at);
  expect(lastEnd).toBeLessThan(at + 2 * LINGER_MS);
  const later = await own.publishDocument();
  const [delivery] = await own.untilFinal(eventId);
  expect(delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 2 });
  expect(delivery?.finished && timestampMs(delivery.finished)).toBeGreaterThan(lastEnd);
  await expect.poll(() => own.db("runs").whereNull("closed").pluck("id")).toEqual([]);
  expect(receiver.received).toHaveLength(0);
  await schedule.unpause();
  await own.untilFinal(later.eventId);
  expect(receiver.received).toHaveLength(1);
});
