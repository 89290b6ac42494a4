import { randomUUID } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { Permission } from "../../gen/webhook/v1/options_pb.ts";
import { readConfig } from "../../src/config/config.ts";
import { catalogue, isNotice } from "../../src/contract/catalogue.ts";
import { rows } from "../../src/db/database.ts";
import { ATTEMPTS_PER_ROUND } from "../../src/db/queue/results.ts";
import { temporalNames } from "../../src/temporal/connection/names.ts";
import { ensureDispatchSchedule } from "../../src/temporal/setup/schedule.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.stop());
afterEach(() => service.removeWebhooks());

describe("a published event", () => {
  test("§1: reaches every webhook registered for it, and no other", async () => {
    const [first, second, other] = [
      await service.receiver(),
      await service.receiver(),
      await service.receiver(),
    ];
    await service.register(`${first.url}/a`);
    await service.register(`${second.url}/b`);
    await service.register(`${other.url}/c`, { process: 2 });
    const { eventId, deliveriesQueued } = await service.publish();
    expect(deliveriesQueued).toBe(2);
    const deliveries = await service.untilFinal(eventId);
    expect(deliveries.map(({ state }) => state)).toEqual([DeliveryState.DELIVERED, DeliveryState.DELIVERED]);
    expect([first, second, other].map(({ received }) => received.length)).toEqual([1, 1, 0]);
  });

  test("§6.1.1: is queued once for each matching webhook, with its data as JSON", async () => {
    const receiver = await service.receiver();
    await Promise.all([1, 2, 3].map((n) => service.register(`${receiver.url}/${n}`)));
    const { eventId } = await service.publish(9_007_199_254_740_993n);
    expect(await service.untilFinal(eventId)).toHaveLength(3);
    const bodies = new Set(receiver.received.map(({ body }) => body));
    expect([...bodies]).toEqual([
      '{"OrderId":9007199254740993,"OrderNumber":"SO-9007199254740993","DispatchedAt":"2026-09-21T14:13:20","Carrier":null,"TrackingNumber":null,"Lines":[]}',
    ]);
  });

  test("§6.1.3: is delivered by an HTTP POST to the registered URL with a JSON body", async () => {
    const receiver = await service.receiver();
    await service.register(`${receiver.url}/hooks?tenant=7`);
    const { eventId } = await service.publish();
    await service.untilFinal(eventId);
    const [request] = receiver.received;
    expect([request?.method, request?.path]).toEqual(["POST", "/hooks?tenant=7"]);
    expect(JSON.parse(request?.body ?? "")).toMatchObject({ OrderId: 1 });
  });

  test("§6.2: carries the contract's headers in their case, and a signature that the Standard Webhooks library accepts", async () => {
    const receiver = await service.receiver();
    const webhookId = await service.register(`${receiver.url}/signed`);
    const { eventId } = await service.publish();
    const [delivery] = await service.untilFinal(eventId);
    const [request] = receiver.received;
    expect(request?.rawHeaders).toEqual(
      expect.arrayContaining(["Content-Type", "application/json; charset=utf-8"]),
    );
    expect(request?.rawHeaders).toEqual(expect.arrayContaining(["X-Service-Webhook-Id", delivery?.id]));
    expect(request?.rawHeaders).toEqual(
      expect.arrayContaining(["X-Service-Webhook-Process", "OrderDispatched"]),
    );
    expect(request?.headers["webhook-id"]).toBe(delivery?.id);
    const { secret } = await service.webhooks.getWebhookSecret({ webhookId });
    const headers = request?.headers as Record<string, string>;
    expect(new Webhook(secret).verify(request?.body ?? "", headers)).toMatchObject({ OrderId: 1 });
    expect(() => new Webhook(secret).verify(`${request?.body} `, headers)).toThrow();
  });

  test("§6.2: has an id of its own, which each of its attempts carries and no other delivery does", async () => {
    const receiver = await service.receiver(({ attempt }) => (attempt < 3 ? 503 : 200));
    await Promise.all([1, 2].map((n) => service.register(`${receiver.url}/${n}`)));
    const events = await Promise.all([1n, 2n].map((orderId) => service.publish(orderId)));
    const deliveries = (await Promise.all(events.map(({ eventId }) => service.untilFinal(eventId)))).flat();
    expect(new Set(deliveries.map(({ id }) => id)).size).toBe(4);
    const carried = receiver.received.map(({ headers }) => headers["x-service-webhook-id"]);
    expect(carried.toSorted()).toEqual(deliveries.flatMap(({ id }) => [id, id, id]).toSorted());
    for (const { headers } of receiver.received)
      expect(headers["content-type"]).toBe("application/json; charset=utf-8");
  });

  test("§5.5: carries X-Service-UserId to webhooks of an installed app only", async () => {
    const [apps, plain] = [await service.receiver(), await service.receiver()];
    const { installedApp } = await service.keys.createInstalledApp({ name: "App" });
    const { secret } = await service.keys.createApiKey({
      name: "app",
      permissions: [Permission.WRITE_ADMINISTRATIVE_DATA],
      installedApplicationId: installedApp?.id,
    });
    await service.register(`${apps.url}/`, { key: secret });
    await service.register(`${plain.url}/`);
    const { eventId } = await service.publish();
    await service.untilFinal(eventId);
    expect(apps.received[0]?.rawHeaders).toEqual(expect.arrayContaining(["X-Service-UserId", "tenant-1"]));
    expect(plain.received[0]?.rawHeaders).not.toContain("X-Service-UserId");
  });

  test("§6.3: has its dates as YYYY-MM-DDThh:mm:ss in every payload", async () => {
    const receiver = await service.receiver();
    const types = catalogue.filter(({ number }) => !isNotice(number));
    for (const { number, name } of types) {
      const webhookId = await service.register(`${receiver.url}/${name}`, { process: number });
      await service.webhooks.sendTestEvent({ webhookId });
    }
    await receiver.until((received) => received.length === types.length);
    for (const { path, body } of receiver.received) {
      const dates = body.match(/"\d{4}-\d\d-\d\d[^"]*"/g) ?? [];
      expect(dates, path).not.toEqual([]);
      for (const date of dates) expect(date, path).toMatch(/^"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d"$/);
    }
    const { eventId } = await service.publish();
    await service.untilFinal(eventId);
    expect(JSON.parse(receiver.received.at(-1)?.body ?? "").DispatchedAt).toBe("2026-09-21T14:13:20");
  });
});

describe("a failed delivery", () => {
  test("§6.1.4: is retried three times under the same id and then marked failed, every attempt recorded", async () => {
    const receiver = await service.receiver(() => 500);
    await service.register(`${receiver.url}/`);
    const { eventId } = await service.publish();
    const [delivery] = await service.untilFinal(eventId);
    expect(delivery).toMatchObject({ state: DeliveryState.FAILED, attemptCount: 4 });
    expect(receiver.received.map(({ headers }) => headers["x-service-webhook-id"])).toEqual(
      Array(4).fill(delivery?.id),
    );
    const { attempts } = await service.deliveries.getDelivery({ deliveryId: delivery?.id ?? "" });
    expect(attempts.map(({ number, status, responseStart }) => [number, status, responseStart])).toEqual(
      [1, 2, 3, 4].map((number) => [number, 500, "answered 500"]),
    );
    const webhooks = await service.webhooks.listWebhooks({});
    expect(webhooks.webhooks.map(({ id }) => id)).toContain(delivery?.webhookId);
  });

  test("§3: is pending, then retrying, then delivered when the receiver recovers", async () => {
    const states: string[] = [];
    const looked = Promise.withResolvers<void>();
    const receiver = await service.receiver(async ({ headers, attempt }) => {
      const id = headers["x-service-webhook-id"] as string;
      const [delivery] = await service.db("all_deliveries").where({ id });
      states.push(delivery.state);
      await looked.promise;
      return attempt < 3 ? 503 : 200;
    });
    await service.register(`${receiver.url}/`);
    const { eventId } = await service.publish();
    const { deliveries } = await service.deliveries.listDeliveries({ eventId });
    looked.resolve();
    // A run may have come before the look.
    expect([DeliveryState.PENDING, DeliveryState.DELIVERING]).toContain(deliveries[0]?.state);
    const [delivery] = await service.untilFinal(eventId);
    expect(delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 3 });
    expect(states).toEqual(["delivering", "retrying", "retrying"]);
  });

  test("is left alone for as long as Retry-After asks", async () => {
    const receiver = await service.receiver(({ attempt }, response) => {
      if (attempt > 1) return 200;
      response.writeHead(429, { "retry-after": "3" }).end();
      return undefined;
    });
    await service.register(`${receiver.url}/`);
    const { eventId } = await service.publish();
    await service.untilFinal(eventId);
    const [first, second] = receiver.received;
    expect((second?.at.getTime() ?? 0) - (first?.at.getTime() ?? 0)).toBeGreaterThanOrEqual(2_900);
  });

  test("is cancelled when its webhook is deleted, and what was attempted stays in the log", async () => {
    const receiver = await service.receiver((_request, response) => {
      response.writeHead(500, { "retry-after": "3600" }).end();
      return undefined;
    });
    const webhookId = await service.register(`${receiver.url}/`);
    const { eventId } = await service.publish();
    const deliveryId = (await service.deliveries.listDeliveries({ eventId })).deliveries[0]?.id ?? "";
    const statuses = async () => {
      const { attempts } = await service.deliveries.getDelivery({ deliveryId });
      return attempts.map(({ status }) => status);
    };
    await expect.poll(statuses).toEqual([500]);
    await service.webhooks.deleteWebhook({ webhookId });
    const [delivery] = await service.untilFinal(eventId);
    expect(delivery?.state).toBe(DeliveryState.CANCELLED);
    expect(await statuses()).toEqual([500]);
    expect(receiver.received).toHaveLength(1);
  });

  test("does not hold up another webhook's delivery, however long it hangs", async () => {
    const letGo = Promise.withResolvers<number>();
    onTestFinished(() => letGo.resolve(200));
    const hanging = await service.receiver(() => letGo.promise);
    const healthy = await service.receiver();
    const hangingId = await service.register(`${hanging.url}/`);
    await service.register(`${healthy.url}/`);
    await service.publish(1n);
    await expect.poll(() => hanging.received.length).toBe(1);
    await Promise.all([2n, 3n, 4n, 5n].map((n) => service.publish(n)));
    await healthy.until((received) => received.length === 5);
    const ended = await rows(
      service.db,
      "select 1 from all_attempts a join all_deliveries d on d.id = a.delivery_id where d.webhook_id = :id::bigint",
      { id: hangingId },
    );
    expect(ended).toEqual([]);
  });
});

describe("a webhook that is paused", () => {
  test("is left alone with its deliveries pending, and gets them when it is resumed", async () => {
    const receiver = await service.receiver();
    const marker = await service.receiver();
    const webhookId = await service.register(`${receiver.url}/`);
    await service.register(`${marker.url}/`);
    await service.db("webhooks").where({ id: webhookId }).update({ paused: new Date() });
    const { eventId } = await service.publish();
    await marker.until((received) => received.length === 1);
    const second = await service.publish();
    await marker.until((received) => received.length === 2);
    expect(receiver.received).toHaveLength(0);
    await service.db("webhooks").where({ id: webhookId }).update({ paused: null });
    await service.untilFinal(eventId);
    await service.untilFinal(second.eventId);
    expect(receiver.received).toHaveLength(2);
  });
});

/** Every search attribute is registered. */
const ALL = { failing: true, attempts: true };

describe("the dispatch", () => {
  test("§6.1.2: happens every minute by default, and minutes never wait for each other", async () => {
    const { dispatch } = readConfig({});
    const names = temporalNames(`${randomUUID()}-`);
    await ensureDispatchSchedule(service.temporal, names, dispatch, ALL);
    const handle = service.temporal.schedule.getHandle(names.scheduleId);
    const { spec, policies } = await handle.describe();
    expect(spec.intervals).toEqual([{ every: 60_000 }]);
    expect(policies).toMatchObject({ overlap: "ALLOW_ALL", catchupWindow: 60_000 });
    await handle.delete();
  });

  test("keeps to its settings after a restart, and stays paused when an operator paused it", async () => {
    const { dispatch } = readConfig({});
    const names = temporalNames(`${randomUUID()}-`);
    await ensureDispatchSchedule(service.temporal, names, dispatch, ALL);
    const handle = service.temporal.schedule.getHandle(names.scheduleId);
    await handle.pause("maintenance");
    await ensureDispatchSchedule(service.temporal, names, { ...dispatch, intervalMs: 30_000 }, ALL);
    const { spec, state } = await handle.describe();
    expect(spec.intervals).toEqual([{ every: 30_000 }]);
    expect(state).toMatchObject({ paused: true, note: "maintenance" });
    await handle.delete();
  });

  test("goes along with a schedule that deletes what is older than the retention, once an hour", async () => {
    const handle = service.temporal.schedule.getHandle(service.retentionScheduleId);
    const { spec, action } = await handle.describe();
    expect(spec.intervals).toEqual([{ every: 3_600_000 }]);
    const { workflowType, taskQueue, args } = action as {
      workflowType: string;
      taskQueue: string;
      args: object[];
    };
    const workflowId = `${service.retentionScheduleId}-now`;
    expect(await service.temporal.workflow.execute(workflowType, { workflowId, taskQueue, args })).toEqual({
      summary:
        "0 open deliveries expired; 0 payloads erased; 0 partitions, 0 idempotency keys, 0 runs, 0 audit entries deleted",
    });
  });

  test("§8: makes the first attempt and three retries, one, five and twenty-five minutes apart by default", () => {
    const { dispatch } = readConfig({});
    expect(ATTEMPTS_PER_ROUND).toBe(1 + 3);
    expect(dispatch).toMatchObject({ retryInitialDelayMs: 60_000, retryBackoffCoefficient: 5 });
  });

  test("writes no payload, URL, response text or key into Temporal's histories", async () => {
    const receiver = await service.receiver((_request, response) => {
      response.writeHead(500).end("a telling response");
      return undefined;
    });
    await service.register(`${receiver.url}/a-telling-path`);
    const { eventId } = await service.publish(424_242n);
    const [delivery] = await service.untilFinal(eventId);
    const { run } = await service.deliveries.getDelivery({ deliveryId: delivery?.id ?? "" });
    const handle = service.temporal.workflow.getHandle(run?.workflowId ?? "", run?.runId);
    const history = decoded(await handle.fetchHistory());
    expect(history).toContain(new URL(receiver.url).host);
    for (const secret of ["a-telling-path", "a telling response", "424242", service.adminKey]) {
      expect(history).not.toContain(secret);
    }
  });
});

/** The history with its payloads readable, which its JSON holds as base64. */
function decoded(history: unknown): string {
  return JSON.stringify(history, (name, value) => {
    if (name === "data" && typeof value === "string") return Buffer.from(value, "base64").toString("utf8");
    if (value instanceof Uint8Array) return Buffer.from(value).toString("utf8");
    return typeof value === "bigint" ? String(value) : value;
  });
}
