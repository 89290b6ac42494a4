import { randomUUID } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import type { Receiver } from "../../demo/receiver.ts";
import { type Delivery, DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { readConfig } from "../../src/config/config.ts";
import { eventTypes, isNotice } from "../../src/contract/catalogue.ts";
import { ensureSchedules } from "../../src/dispatch/schedule.ts";
import { ATTEMPTS_PER_ROUND } from "../../src/queue/results.ts";
import { temporalNames } from "../../src/temporal/names.ts";
import { replay, startRun } from "../support/dispatch-runs.ts";
import { BY_HAND, fileService } from "../support/test-service.ts";
import { textsOf } from "../upgrade/stored-histories.ts";

const service = fileService(BY_HAND);

describe("a published event", () => {
  let [first, second, ofApp, ofOtherType, ofEachType]: Receiver[] = [];
  let queued: number;
  let deliveries: Delivery[];
  let secret: string;
  const types = eventTypes().filter(({ number }) => !isNotice(number));

  beforeAll(async () => {
    const receivers = await Promise.all(Array.from({ length: 5 }, () => service.receiver()));
    [first, second, ofApp, ofOtherType, ofEachType] = receivers;
    const webhookId = await service.register(`${first?.url}/hooks?tenant=7`);
    ({ secret } = await service.webhooks.getWebhookSecret({ webhookId }));
    await service.register(`${second?.url}/`);
    const { installedApp } = await service.keys.createInstalledApp({ name: "App" });
    const app = await service.keys.createApiKey({
      name: "app",
      permissions: [Permission.WRITE_ADMINISTRATIVE_DATA],
      installedApplicationId: installedApp?.id,
    });
    await service.register(`${ofApp?.url}/`, { key: app.secret });
    await service.register(`${ofOtherType?.url}/`, { process: 2 });
    const { eventId, deliveriesQueued } = await service.publish(9_007_199_254_740_993n);
    queued = deliveriesQueued;
    for (const { number } of types) {
      const id = await service.register(`${ofEachType?.url}/`, { process: number });
      await service.webhooks.sendTestEvent({ webhookId: id });
    }
    await service.dispatch();
    deliveries = await service.untilFinal(eventId);
    await service.removeWebhooks();
  });

  test("§1: reaches every webhook registered for it, and no other", () => {
    expect(deliveries.map(({ state }) => state)).toEqual(Array(3).fill(DeliveryState.DELIVERED));
    const received = [first, second, ofApp, ofOtherType].map((receiver) => receiver?.received.length);
    expect(received).toEqual([1, 1, 1, 0]);
  });

  test("§6.1.1: is queued once for each matching webhook, with its data as JSON", () => {
    expect(queued).toBe(3);
    const json =
      '{"OrderId":9007199254740993,"OrderNumber":"SO-9007199254740993","DispatchedAt":"2026-09-21T14:13:20","Carrier":null,"TrackingNumber":null,"Lines":[]}';
    for (const receiver of [first, second, ofApp]) expect(receiver?.received[0]?.body).toBe(json);
  });

  test("§6.1.3: is delivered by an HTTP POST to the registered URL with a JSON body", () => {
    const [request] = first?.received ?? [];
    expect([request?.method, request?.path]).toEqual(["POST", "/hooks?tenant=7"]);
  });

  test("§6.2: carries the contract's headers in their case, and a signature that the Standard Webhooks library accepts", () => {
    const [request] = first?.received ?? [];
    const id = deliveries.find(({ url }) => url.includes("tenant=7"))?.id;
    for (const header of [
      ["Content-Type", "application/json; charset=utf-8"],
      ["X-Service-Webhook-Id", id],
      ["X-Service-Webhook-Process", "OrderDispatched"],
      ["webhook-id", id],
    ])
      expect(request?.rawHeaders.join("\n")).toContain(header.join("\n"));
    const headers = request?.headers as Record<string, string>;
    expect(new Webhook(secret).verify(request?.body ?? "", headers)).toHaveProperty("OrderId");
    expect(() => new Webhook(secret).verify(`${request?.body} `, headers)).toThrow();
  });

  test("§5.5: carries X-Service-UserId to webhooks of an installed app only", () => {
    expect(ofApp?.received[0]?.rawHeaders.join("\n")).toContain("X-Service-UserId\ntenant-1");
    expect(first?.received[0]?.rawHeaders).not.toContain("X-Service-UserId");
  });

  test("§6.3: has its dates as YYYY-MM-DDThh:mm:ss in every payload", () => {
    expect(ofEachType?.received).toHaveLength(types.length);
    for (const { headers, body } of ofEachType?.received ?? []) {
      const type = headers["x-service-webhook-process"] as string;
      const dates = body.match(/"\d{4}-\d\d-\d\d[^"]*"/g) ?? [];
      expect(dates, type).not.toEqual([]);
      for (const date of dates) expect(date, type).toMatch(/^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"$/);
    }
  });
});

describe("a delivery", () => {
  let [failing, recovering]: Receiver[] = [];
  let [failed, recovered]: Delivery[] = [];
  /** The states of a delivery: before its first attempt, during each, and at the end. */
  const states: string[] = [];

  const readState = async (id: string) => {
    const { state } = await service.db("all_deliveries").where({ id }).first();
    states.push(state);
  };

  beforeAll(async () => {
    failing = await service.receiver((_request, response) => {
      response.writeHead(500).end("a telling response");
      return undefined;
    });
    recovering = await service.receiver(async ({ headers, attempt }) => {
      await readState(headers["x-service-webhook-id"] as string);
      return attempt < 3 ? 503 : 200;
    });
    const failingId = await service.register(`${failing.url}/a-telling-path`);
    await service.register(`${recovering.url}/`);
    const { eventId } = await service.publish(424_242n);
    const { deliveries } = await service.deliveries.listDeliveries({ eventId });
    const recoveringId = deliveries.find(({ webhookId }) => webhookId !== failingId)?.id as string;
    await readState(recoveringId);
    await service.dispatch();
    await readState(recoveringId);
    const ended = await service.untilFinal(eventId);
    failed = ended.find(({ webhookId }) => webhookId === failingId);
    recovered = ended.find(({ webhookId }) => webhookId !== failingId);
  });

  const attemptsOf = async (delivery: Delivery | undefined) =>
    (await service.deliveries.getDelivery({ deliveryId: delivery?.id as string })).attempts;

  test("§6.1.4: that fails is retried three times and then marked failed, every attempt recorded", async () => {
    expect(failed).toMatchObject({ state: DeliveryState.FAILED, attemptCount: 4 });
    expect(failing?.received).toHaveLength(4);
    const attempts = await attemptsOf(failed);
    expect(attempts.map(({ number, status, responseStart }) => [number, status, responseStart])).toEqual(
      [1, 2, 3, 4].map((number) => [number, 500, "a telling response"]),
    );
    const { webhooks } = await service.webhooks.listWebhooks({});
    expect(webhooks.map(({ id }) => id)).toContain(failed?.webhookId);
  });

  test("§3: is pending, then retrying, then delivered when the receiver recovers", () => {
    expect(recovered).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 3 });
    expect(states).toEqual(["pending", "delivering", "retrying", "retrying", "delivered"]);
  });

  test("§6.2: has a unique id, which all its attempts carry", () => {
    expect(failed?.id).not.toBe(recovered?.id);
    const idsOf = (receiver?: Receiver) => [
      ...new Set(receiver?.received.map(({ headers }) => headers["x-service-webhook-id"])),
    ];
    expect([failing, recovering].map(idsOf)).toEqual([[failed?.id], [recovered?.id]]);
  });

  test("leaves no payload, URL, response text or key in Temporal's histories", async () => {
    const { run } = await service.deliveries.getDelivery({ deliveryId: failed?.id as string });
    const handle = service.temporal.workflow.getHandle(run?.workflowId ?? "", run?.runId);
    const history = textsOf(await handle.fetchHistory()).join("\n");
    expect(history).toContain(new URL(failing?.url as string).host);
    for (const secret of ["a-telling-path", "a telling response", "424242", service.adminKey])
      expect(history).not.toContain(secret);
  });
});

describe("the dispatch", () => {
  const { dispatch } = readConfig({});

  test("§6.1.2: happens every minute by default, and minutes never wait for each other; it keeps to its settings, and stays paused when an operator paused it", async () => {
    const names = temporalNames(`${randomUUID()}-`);
    const ensure = (settings: Partial<typeof dispatch> = {}) =>
      ensureSchedules(service.temporal, names, { ...dispatch, ...settings });
    await ensure();
    const handle = service.temporal.schedule.getHandle(names.scheduleId);
    onTestFinished(async () => {
      await handle.delete();
      await service.temporal.schedule.getHandle(names.retentionScheduleId).delete();
    });
    expect(await handle.describe()).toMatchObject({
      spec: { intervals: [{ every: 60_000 }] },
      // First attempts end fifteen seconds after the next run has begun.
      action: { args: [{ pumpMs: 75_000, lingers: false }] },
      policies: { overlap: "ALLOW_ALL", catchupWindow: 60_000 },
    });
    await handle.pause("maintenance");
    await ensure({ intervalMs: 30_000 });
    expect(await handle.describe()).toMatchObject({
      spec: { intervals: [{ every: 30_000 }] },
      state: { paused: true, note: "maintenance" },
    });
  });

  test("goes along with a schedule that deletes what is older than the retention, once an hour", async () => {
    const handle = service.temporal.schedule.getHandle(service.retentionScheduleId);
    const { spec } = await handle.describe();
    expect(spec.intervals).toEqual([{ every: 3_600_000 }]);
    const run = await startRun({ ...service, scheduleId: service.retentionScheduleId });
    expect(await run.result()).toEqual({
      summary:
        "0 open deliveries expired; 0 payloads erased; 0 partitions, 0 idempotency keys, 0 runs, 0 audit entries, 0 incidents deleted",
    });
    await replay(run, "retention");
  });

  test("§8: makes the first attempt and three retries, one, five and twenty-five minutes apart by default", () => {
    expect(ATTEMPTS_PER_ROUND).toBe(1 + 3);
    expect(dispatch).toMatchObject({ retryInitialDelayMs: 60_000, retryBackoffCoefficient: 5 });
  });
});
