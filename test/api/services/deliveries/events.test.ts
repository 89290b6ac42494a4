import { randomUUID } from "node:crypto";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Delivery, DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { EventService } from "../../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { openDatabase } from "../../../../src/db/database.ts";
import { createInstalledApp } from "../../../../src/db/keys/installed-apps.ts";
import { connect, grpc } from "../../../support/clients.ts";
import { createTestDatabase } from "../../../support/database.ts";
import { failure } from "../../../support/failure.ts";
import { orderEvent } from "../../../support/grpc-calls.ts";
import { changeDelivery, storeDeliveries } from "../../../support/stored-deliveries.ts";
import { startTestApi, type TestApi } from "../../../support/test-api.ts";

let api: TestApi;
let deliveries: Client<typeof DeliveryService>;
let ofApp: Client<typeof DeliveryService>;
let webhook: bigint;
let appWebhook: bigint;

beforeAll(async () => {
  api = await startTestApi();
  deliveries = createClient(DeliveryService, grpc(api));
  webhook = await api.register();
  const app = await createInstalledApp(api.context.db, "app");
  const { secret } = await api.key({ installedAppId: app.id });
  ofApp = createClient(DeliveryService, grpc(api, secret));
  const made = await createClient(WebhookService, grpc(api, secret)).createWebhook({
    process: 1,
    url: "https://app.example/hooks",
  });
  appWebhook = made.webhook?.id as bigint;
});
afterAll(() => api.stop());

/** Publishes an order for both webhooks. */
async function publish(key = api.adminKey) {
  const idempotencyKey = randomUUID();
  const { eventId } = await createClient(EventService, grpc(api, key)).publishEvent({
    idempotencyKey,
    userId: "tenant-7",
    time: { seconds: 1_790_000_000n },
    data: {
      case: "orderDispatched",
      value: { orderId: 9_007_199_254_740_993n, orderNumber: "SO-7", dispatchedAt: { seconds: 1n } },
    },
  });
  const listed = (await deliveries.listDeliveries({ eventId })).deliveries;
  const of = (id: bigint) => listed.find(({ webhookId }) => webhookId === id)?.id as string;
  return { eventId, idempotencyKey, of };
}

test("an event tells its publisher, user, times and payload, and how many deliveries are in each state", async () => {
  const { eventId, idempotencyKey, of } = await publish();
  await changeDelivery(api.context.db, of(webhook), { state: "failed", attempts: 4 });
  const { event, payload, deliveries: counts } = await deliveries.getEvent({ eventId });
  expect(event).toMatchObject({
    id: eventId,
    process: 1,
    userId: "tenant-7",
    time: { seconds: 1_790_000_000n },
    subject: "SO-7",
    idempotencyKey,
    apiKeyId: api.adminKeyId,
    apiKeyName: "admin",
    erased: false,
    test: false,
  });
  expect(Math.abs(Number(event?.published?.seconds) - Date.now() / 1_000)).toBeLessThan(60);
  expect(payload).toContain('"OrderId":9007199254740993');
  expect(counts).toEqual([
    expect.objectContaining({ state: DeliveryState.PENDING, count: 1 }),
    expect.objectContaining({ state: DeliveryState.FAILED, count: 1 }),
  ]);
});

test.each(["Europe/Amsterdam", "America/New_York"])(
  "an event of the year 1 has its time on its page and on that of its delivery, if the database's time zone is %s",
  async (zone) => {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    const db = openDatabase(database.url, { max: 1 });
    await db.raw(`alter database "${new URL(database.url).pathname.slice(1)}" set timezone = '${zone}'`);
    await db.destroy();
    const own = await startTestApi({ databaseUrl: database.url });
    onTestFinished(() => own.stop());
    await own.register();
    // What Go sends for a time that was not set.
    const time = { seconds: BigInt(Date.parse("0001-01-01T00:00:00Z") / 1_000), nanos: 0 };
    const { eventId } = await createClient(EventService, grpc(own)).publishEvent({ ...orderEvent(), time });
    const client = createClient(DeliveryService, grpc(own));
    expect((await client.getEvent({ eventId })).event?.time).toMatchObject(time);
    const [listed] = (await client.listDeliveries({ eventId })).deliveries;
    const { event } = await client.getDelivery({ deliveryId: listed?.id as string });
    expect(event?.time).toMatchObject(time);
  },
);

test("a key of an app sees an event that its webhook gets, not who published it, and counts its own deliveries", async () => {
  const { eventId, of } = await publish();
  const seen = await ofApp.getEvent({ eventId });
  expect(seen.event).toMatchObject({ userId: "tenant-7", subject: "SO-7" });
  expect([seen.event?.apiKeyId, seen.event?.apiKeyName, seen.event?.idempotencyKey]).toEqual([
    undefined,
    undefined,
    undefined,
  ]);
  expect(seen.deliveries.map(({ count }) => count)).toEqual([1]);
  expect((await ofApp.getDelivery({ deliveryId: of(appWebhook) })).event?.apiKeyId).toBeUndefined();
  await createClient(WebhookService, grpc(api)).deleteWebhook({ webhookId: webhook });
  webhook = await api.register();
  const [other = ""] = await storeDeliveries(api.context.db, [{ webhookId: webhook }]);
  const eventOfOther = (await deliveries.getDelivery({ deliveryId: other })).delivery?.eventId as string;
  for (const id of [eventOfOther, randomUUID()]) {
    expect((await failure(ofApp.getEvent({ eventId: id })))?.code).toBe(Code.NotFound);
  }
});

test("an event keeps its recipients and user when its payload is erased, and its publisher's id when the key is removed", async () => {
  const publisher = await api.key({ name: "publisher" });
  const { eventId } = await publish(publisher.secret);
  await api.context.db("api_keys").where({ id: publisher.id }).delete();
  await api.context.db("events").where({ id: eventId }).update({ payload: null });
  const { event, payload } = await deliveries.getEvent({ eventId });
  expect(event).toMatchObject({ userId: "tenant-7", erased: true, apiKeyId: publisher.id });
  expect([event?.subject, event?.apiKeyName, payload]).toEqual([undefined, undefined, ""]);
});

test("listed deliveries tell what their event is about, and the result of the latest attempt", async () => {
  const { eventId, of } = await publish();
  const listed = async () => (await deliveries.listDeliveries({ eventId, webhookId: webhook })).deliveries[0];
  expect(await listed()).toMatchObject({ subject: "SO-7" });
  expect((await listed())?.status).toBeUndefined();
  const tried = [
    { status: 500, durationMs: 20 },
    { status: null, error: "connection reset (ECONNRESET)", durationMs: 30 },
  ];
  await changeDelivery(api.context.db, of(webhook), { state: "retrying", tried, attempts: 2 });
  expect(await listed()).toMatchObject({ error: "connection reset (ECONNRESET)", durationMs: 30 });
  expect((await listed())?.status).toBeUndefined();
  await api.context
    .db("attempts")
    .where({ delivery_id: of(webhook) })
    .delete();
  await changeDelivery(api.context.db, of(webhook), {
    state: "failed",
    tried: [{ status: 503 }],
    attempts: 1,
  });
  expect(await listed()).toMatchObject({ status: 503, durationMs: 5, subject: "SO-7" });
});

test("a delivery is the same in a list and by its id, tried, untried or ended without another attempt", async () => {
  const webhookId = await api.register();
  const tried = [{ status: 500 }, { status: 503 }];
  await storeDeliveries(api.context.db, [
    { webhookId },
    { webhookId, tried },
    { webhookId, state: "retrying", tried },
    { webhookId, state: "failed", tried },
    { webhookId, state: "cancelled", tried, endedUntried: true },
    { webhookId, state: "filtered" },
  ]);
  const { deliveries: listed } = await deliveries.listDeliveries({ webhookId });
  expect(listed).toHaveLength(6);
  for (const each of listed) {
    const { delivery } = await deliveries.getDelivery({ deliveryId: each.id });
    expect(delivery).toEqual(each);
  }
});

test("failures are counted by reason, the most frequent first, of failed and retrying deliveries that match", async () => {
  const busy = await api.register();
  const expired = { status: null, error: "certificate has expired (CERT_HAS_EXPIRED)" };
  await storeDeliveries(api.context.db, [
    ...Array.from({ length: 3 }, () => ({
      webhookId: busy,
      state: "failed" as const,
      tried: [{ status: 500 }, { status: 500 }],
    })),
    { webhookId: busy, state: "retrying", tried: [expired] },
    { webhookId: busy, state: "failed", tried: [{ status: 503 }, expired] },
    { webhookId: busy, state: "failed", reason: "interrupted" },
    { webhookId: busy, state: "delivered", tried: [{ status: 200 }] },
    { webhookId: busy },
  ]);
  const found = await deliveries.listFailureReasons({ webhookId: busy });
  expect(found.reasons.map(({ reason, count }) => [reason, count])).toEqual([
    ["HTTP 500", 3],
    ["certificate has expired (CERT_HAS_EXPIRED)", 2],
    ["interrupted", 1],
  ]);
  expect(found.examined).toBe(6);
  expect(found.searchedBackTo).toBeUndefined();
  const retrying = await deliveries.listFailureReasons({
    search: `#${busy}`,
    states: [DeliveryState.RETRYING],
  });
  expect(retrying.reasons.map(({ count }) => count)).toEqual([1]);
  const refused = await failure(deliveries.listFailureReasons({ states: [DeliveryState.DELIVERED] }));
  expect(refused?.rawMessage).toContain(
    "must be one or more of: DELIVERY_STATE_FAILED, DELIVERY_STATE_RETRYING",
  );
});

test("test events of any payload can be listed, exported, read and sent again by app and administrator, and have a subject of at most 300 characters if it is text", async () => {
  const deep = `${"[".repeat(8_000)}${"]".repeat(8_000)}`;
  const subjects: [payload: string, subject: string | undefined][] = [
    ['{"OrderNumber":{"toString":null}}', undefined],
    ['{"OrderNumber":[[1]],"TrackingNumber":true}', undefined],
    [`{"OrderNumber":${deep}}`, undefined],
    [`{"OrderNumber":"SO-1","Deep":${deep}}`, "SO-1"],
    ['{"OrderNumber":{},"TrackingNumber":["JD-1"]}', "JD-1"],
    ['{"OrderNumber":9007199254740993}', "9007199254740993"],
    ['{"OrderNumber":"\\ud800"}', "\ufffd"],
    [`{"OrderNumber":"${"🚚".repeat(300)}"}`, "🚚".repeat(300)],
    [`{"OrderNumber":"${"🚚".repeat(301)}"}`, `${"🚚".repeat(299)}…`],
    [`{"OrderNumber":${"1".repeat(301)}}`, `${"1".repeat(299)}…`],
  ];
  const asJson = createClient(DeliveryService, connect(api, api.adminKey, false));
  for (const [payload, subject] of subjects) {
    const { eventId, deliveryId } = await createClient(WebhookService, grpc(api)).sendTestEvent({
      webhookId: appWebhook,
      payload,
    });
    for (const client of [ofApp, deliveries, asJson]) {
      await changeDelivery(api.context.db, deliveryId, { state: "failed", attempts: 1 });
      const { deliveries: listed } = await client.listDeliveries({ eventId });
      const { event } = await client.getEvent({ eventId });
      const { delivery } = await client.getDelivery({ deliveryId });
      const exported: (Delivery | undefined)[] = [];
      for await (const page of client.exportDeliveries({ eventId })) exported.push(...page.deliveries);
      const { delivery: again } = await client.sendAgain({ deliveryId });
      const found = [...listed, ...exported, delivery, again];
      expect(found.map((each) => each?.id)).toEqual(Array(4).fill(deliveryId));
      expect([...found, event].map((each) => each?.subject)).toEqual(Array(5).fill(subject));
    }
  }
});
