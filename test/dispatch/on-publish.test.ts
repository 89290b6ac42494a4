import { randomBytes, randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { Worker } from "@temporalio/worker";
import { afterAll, afterEach, beforeAll, expect, inject, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { readConfig } from "../../src/config.ts";
import { startService } from "../../src/main.ts";
import { temporalNames } from "../../src/temporal/names.ts";
import { createTestDatabase } from "../support/database.ts";
import { keyedTransport, startTestService, type TestService, WOKEN } from "../support/test-service.ts";

let service: TestService;
beforeAll(async () => {
  service = await startTestService(WOKEN);
});
afterAll(() => service.stop());
afterEach(() => service.removeWebhooks());

const wokenId = () => `${service.scheduleId}-on-publish`;
const wokenRuns = () => service.db("runs").where({ workflow_id: wokenId() });
const order = (orderId: bigint) => ({
  idempotencyKey: randomUUID(),
  userId: "tenant-1",
  data: {
    case: "orderDispatched" as const,
    value: { orderId, orderNumber: `SO-${orderId}`, dispatchedAt: { seconds: 1_790_000_000n } },
  },
});

const publishDocument = () =>
  createClient(EventService, service.transport).publishEvent({
    ...order(1n),
    data: {
      case: "documentCreated",
      value: { documentId: 1n, kind: 1, number: "D", createdAt: { seconds: 1n } },
    },
  });

test("an event arrives once it is published, and does not wait for the minute", async () => {
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  const { eventId } = await service.publish();
  await receiver.until((received) => received.length === 1);
  expect((await service.untilFinal(eventId))[0]?.state).toBe(DeliveryState.DELIVERED);
});

test("200 events published at once arrive, each once, by few runs", async () => {
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  const before = (await wokenRuns()).length;
  await Promise.all(Array.from({ length: 200 }, (_, n) => service.publish(BigInt(n + 1))));
  await receiver.until((received) => received.length >= 200);
  expect(new Set(receiver.received.map(({ headers }) => headers["x-service-webhook-id"])).size).toBe(200);
  expect(receiver.received).toHaveLength(200);
  // How many depends on how long the publishing takes; a run for each event, or nearly, it must not be.
  expect((await wokenRuns()).length - before).toBeLessThanOrEqual(20);
});

test("an event published while a pump waits for a slow receiver does not wait for it", async () => {
  const letGo = Promise.withResolvers<number>();
  onTestFinished(() => letGo.resolve(200));
  const slow = await service.receiver(() => letGo.promise);
  const fast = await service.receiver();
  await service.register(`${slow.url}/`);
  const first = await service.publish(1n);
  await expect.poll(() => slow.received.length).toBe(1);
  await service.register(`${fast.url}/`, { process: 2 });
  await publishDocument();
  await fast.until((received) => received.length === 1);
  const [waiting] = (await service.deliveries.listDeliveries({ eventId: first.eventId })).deliveries;
  expect(waiting?.state).toBe(DeliveryState.DELIVERING);
  letGo.resolve(200);
  await service.untilFinal(first.eventId);
});

test("what is left to a run for a slow receiver is sent while publishing goes on for others, after few wake-ups", async () => {
  const slow = await service.receiver(async ({ body }) => {
    if (body.includes('"SO-1"')) await wait(1_500);
    return 200;
  });
  const fast = await service.receiver();
  await service.register(`${slow.url}/`);
  await service.register(`${fast.url}/`, { process: 2 });
  const first = await service.publish(1n);
  await service.untilFinal(first.eventId);
  const second = await service.publish(2n);
  let wakeUps = 0;
  // Each alone, so that each wakes a pump.
  for (; slow.received.length < 2 && wakeUps < 200; wakeUps += 1) {
    await publishDocument();
    await fast.until((received) => received.length > wakeUps);
  }
  expect(slow.received).toHaveLength(2);
  expect(wakeUps).toBeLessThan(60);
  await service.untilFinal(second.eventId);
});

test("retries of a failing webhook go on in a run of their own, and later events are not held up by them", async () => {
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
});

test("woken runs end by themselves, leave none of their deliveries open, and replay", async () => {
  const failing = await service.receiver(() => 500);
  await service.register(`${failing.url}/`);
  const { eventId } = await service.publish();
  expect((await service.untilFinal(eventId))[0]?.state).toBe(DeliveryState.FAILED);
  await expect.poll(async () => (await wokenRuns()).filter(({ closed }) => closed === null)).toEqual([]);

  const [run] = await wokenRuns().orderBy("id", "desc").limit(1);
  const [runId] = run.first_run_id.split("/");
  const woken = service.temporal.workflow.getHandle(wokenId(), runId);
  expect(await woken.result()).toMatchObject({ failed: 0, handedOver: 1 });
  const retries = service.temporal.workflow.getHandle(`${wokenId()}-retries-${run.first_run_id}`);
  expect(await retries.result()).toMatchObject({ sent: 4, failed: 1 });
  const code = await readFile(inject("workflowBundle"), "utf8");
  for (const handle of [woken, retries]) {
    const history = await handle.fetchHistory();
    await Worker.runReplayHistory({ workflowBundle: { code } }, history, handle.workflowId);
  }
});

test("while the schedule is paused, publishing wakes nothing", async () => {
  const paused = await startTestService(WOKEN);
  try {
    const receiver = await paused.receiver();
    await paused.register(`${receiver.url}/`);
    await paused.temporal.schedule.getHandle(paused.scheduleId).pause();
    const { eventId } = await paused.publish();
    // Rounds of other calls: time enough for a run to have been made.
    for (let i = 0; i < 200; i += 1) await paused.deliveries.listDeliveries({ eventId });
    expect(await paused.db("runs")).toEqual([]);
    expect(receiver.received).toHaveLength(0);
  } finally {
    await paused.stop();
  }
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
    SECRET_KEY: randomBytes(32).toString("base64"),
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

test("DISPATCH_ON_PUBLISH is off by default, and on an API process it needs Temporal's address", () => {
  expect(readConfig({}).dispatch.onPublish).toBe(false);
  const api = {
    ROLE: "api",
    DATABASE_URL: "postgres://u:p@db/webhook",
    SECRET_KEY: randomBytes(32).toString("hex"),
    DISPATCH_ON_PUBLISH: "true",
  };
  expect(() => readConfig(api)).toThrow("TEMPORAL_ADDRESS is missing");
  expect(readConfig({ ...api, TEMPORAL_ADDRESS: "temporal:7233" }).dispatch.onPublish).toBe(true);
});
