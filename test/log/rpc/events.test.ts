import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { DeliveryService, DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { subjectOf } from "../../../src/contract/subject.ts";
import { openDatabase } from "../../../src/lib/pg/database.ts";
import { timeOfId } from "../../../src/schema/partitions.ts";
import { connect } from "../../support/clients.ts";
import { createTestDatabase } from "../../support/database.ts";
import { anOrder } from "../../support/grpc-calls.ts";
import { expectRefused } from "../../support/refusals.ts";
import { changeDelivery, storeDeliveries } from "../../support/stored-deliveries.ts";
import { startTestApi, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { deliveries } = api;
const appKey = (await api.key({ installedAppId: await api.app() })).secret;
const ofApp = api.as(appKey).deliveries;
const webhook = await api.register();
const appWebhook = await api.register({ key: appKey });
const TIME = { seconds: 1_790_000_000n };

/** Publishes an order for both webhooks. */
async function publish(key = api.adminKey) {
  const event = anOrder(
    { orderId: 9_007_199_254_740_993n, orderNumber: "SO-7" },
    { userId: "tenant-7", time: TIME },
  );
  const { eventId } = await api.as(key).events.publishEvent(event);
  const listed = (await deliveries.listDeliveries({ eventId })).deliveries;
  const of = (id: bigint) => listed.find(({ webhookId }) => webhookId === id)?.id as string;
  return { eventId, idempotencyKey: event.idempotencyKey, of };
}

test("an event tells its publisher, user, times and payload, and how many deliveries are in each state", async () => {
  const { eventId, idempotencyKey, of } = await publish();
  await changeDelivery(db, of(webhook), { state: "failed", attempts: 4 });
  const { event, payload, deliveries: counts } = await deliveries.getEvent({ eventId });
  const about = { id: eventId, process: 1, userId: "tenant-7", time: TIME, subject: "SO-7" };
  expect(event).toMatchObject({ ...about, idempotencyKey, erased: false, test: false });
  expect(event).toMatchObject({ apiKeyId: api.adminKeyId, apiKeyName: "admin" });
  expect(timestampDate(event?.published as never)).toEqual(timeOfId(eventId));
  expect(payload).toContain('"OrderId":9007199254740993');
  const { PENDING, FAILED } = DeliveryState;
  expect(counts.map(({ state, count }) => [state, count])).toEqual([
    [PENDING, 1],
    [FAILED, 1],
  ]);
});

test("an event of the year 1 keeps its time in any time zone of the database", async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const settings = openDatabase(database.url, { max: 1 });
  const name = new URL(database.url).pathname.slice(1);
  await settings.raw(`alter database "${name}" set timezone = 'Europe/Amsterdam'`);
  await settings.destroy();
  const own = await startTestApi({ databaseUrl: database.url });
  onTestFinished(() => own.stop());
  await own.register();
  // What Go sends for a time that was not set.
  const time = { seconds: BigInt(Date.parse("0001-01-01T00:00:00Z") / 1_000), nanos: 0 };
  const { eventId } = await own.events.publishEvent(anOrder({}, { time }));
  expect((await own.deliveries.getEvent({ eventId })).event?.time).toMatchObject(time);
  const [listed] = (await own.deliveries.listDeliveries({ eventId })).deliveries;
  const { event } = await own.deliveries.getDelivery({ deliveryId: listed?.id as string });
  expect(event?.time).toMatchObject(time);
});

test("a key of an app sees an event that its webhook gets, not who published it, and counts its own deliveries", async () => {
  const { eventId, of } = await publish();
  const seen = await ofApp.getEvent({ eventId });
  expect(seen.event).toMatchObject({ userId: "tenant-7", subject: "SO-7" });
  const { apiKeyId, apiKeyName, idempotencyKey } = seen.event ?? {};
  expect([apiKeyId, apiKeyName, idempotencyKey]).toEqual([undefined, undefined, undefined]);
  expect(seen.deliveries.map(({ count }) => count)).toEqual([1]);
  expect((await ofApp.getDelivery({ deliveryId: of(appWebhook) })).event?.apiKeyId).toBeUndefined();
  const [other = ""] = await storeDeliveries(db, [{ webhookId: webhook }]);
  const { delivery } = await deliveries.getDelivery({ deliveryId: other });
  await expectRefused(ofApp.getEvent({ eventId: delivery?.eventId as string }), Code.NotFound);
});

test("an event keeps its recipients and user when its payload is erased, and its publisher's id when the key is removed", async () => {
  const publisher = await api.key({ name: "publisher" });
  const { eventId } = await publish(publisher.secret);
  await db("api_keys").where({ id: publisher.id }).delete();
  await db("events").where({ id: eventId }).update({ payload: null });
  const { event, payload } = await deliveries.getEvent({ eventId });
  expect(event).toMatchObject({ userId: "tenant-7", erased: true, apiKeyId: publisher.id });
  expect([event?.subject, event?.apiKeyName, payload]).toEqual([undefined, undefined, ""]);
});

test("listed deliveries tell what their event is about, and the result of the latest attempt", async () => {
  const { eventId, of } = await publish();
  const listed = async () => (await deliveries.listDeliveries({ eventId, webhookId: webhook })).deliveries[0];
  const untried = await listed();
  expect([untried?.subject, untried?.status]).toEqual(["SO-7", undefined]);
  const tried = [
    { status: 500, durationMs: 20 },
    { status: null, error: "connection reset (ECONNRESET)", durationMs: 30 },
  ];
  await changeDelivery(db, of(webhook), { state: "retrying", tried, attempts: 2 });
  const retrying = await listed();
  expect(retrying).toMatchObject({ error: "connection reset (ECONNRESET)", durationMs: 30 });
  expect(retrying?.status).toBeUndefined();
  const { delivery } = await deliveries.getDelivery({ deliveryId: of(webhook) });
  expect(delivery).toEqual(retrying);
  await changeDelivery(db, of(webhook), { state: "failed", tried: [{ status: 503 }], attempts: 1 });
  expect(await listed()).toMatchObject({ status: 503, durationMs: 5, subject: "SO-7" });
});

test("failures are counted by reason, the most frequent first, of failed and retrying deliveries that match", async () => {
  const webhookId = await api.register();
  const expired = { status: null, error: "certificate has expired (CERT_HAS_EXPIRED)" };
  const failed = { webhookId, state: "failed" as const };
  await storeDeliveries(db, [
    ...Array.from({ length: 3 }, () => ({ ...failed, tried: [{ status: 500 }, { status: 500 }] })),
    { webhookId, state: "retrying", tried: [expired] },
    { ...failed, tried: [{ status: 503 }, expired] },
    { ...failed, reason: "interrupted" },
    { webhookId, state: "delivered", tried: [{ status: 200 }] },
    { webhookId },
  ]);
  const found = await deliveries.listFailureReasons({ webhookId });
  expect(found.reasons.map(({ reason, count }) => [reason, count])).toEqual([
    ["HTTP 500", 3],
    ["certificate has expired (CERT_HAS_EXPIRED)", 2],
    ["interrupted", 1],
  ]);
  expect([found.examined, found.searchedBackTo]).toEqual([6, undefined]);
  const states = [DeliveryState.RETRYING];
  const retrying = await deliveries.listFailureReasons({ search: `#${webhookId}`, states });
  expect(retrying.reasons.map(({ count }) => count)).toEqual([1]);
  await expectRefused(
    deliveries.listFailureReasons({ states: [DeliveryState.DELIVERED] }),
    Code.InvalidArgument,
    "must be one or more of: DELIVERY_STATE_FAILED, DELIVERY_STATE_RETRYING",
  );
});

const DEEP = `${"[".repeat(8_000)}${"]".repeat(8_000)}`;

test.each([
  ["objects", '{"OrderNumber":{"toString":null}}', undefined],
  ["lists of lists, and booleans", '{"OrderNumber":[[1]],"TrackingNumber":true}', undefined],
  ["what is nested too deeply", `{"OrderNumber":${DEEP}}`, undefined],
  ["a text beside what is nested too deeply", `{"OrderNumber":"SO-1","Deep":${DEEP}}`, "SO-1"],
  ["the text of a list after an object", '{"OrderNumber":{},"TrackingNumber":["JD-1"]}', "JD-1"],
  ["a large integer", '{"OrderNumber":9007199254740993}', "9007199254740993"],
  ["half of a surrogate pair", '{"OrderNumber":"\\ud800"}', "\ufffd"],
  ["300 characters", `{"OrderNumber":"${"🚚".repeat(300)}"}`, "🚚".repeat(300)],
  ["301 characters", `{"OrderNumber":"${"🚚".repeat(301)}"}`, `${"🚚".repeat(299)}…`],
  ["an integer of 301 digits", `{"OrderNumber":${"1".repeat(301)}}`, `${"1".repeat(299)}…`],
])("the subject of a payload is text of at most 300 characters: of %s", (_, payload, subject) => {
  expect(subjectOf(1, payload)).toBe(subject);
});

test.each([
  ["what is nested too deeply", `{"OrderNumber":${DEEP}}`, undefined],
  ["half of a surrogate pair", '{"OrderNumber":"\\ud800"}', "\ufffd"],
])("a test event with %s can be listed, exported, read and sent again", async (_, payload, subject) => {
  const { eventId, deliveryId } = await api.webhooks.sendTestEvent({ webhookId: appWebhook, payload });
  const asJson = createClient(DeliveryService, connect(api, api.adminKey, false));
  for (const client of [ofApp, asJson]) {
    await changeDelivery(db, deliveryId, { state: "failed", attempts: 1 });
    const { event } = await client.getEvent({ eventId });
    const found = [...(await client.listDeliveries({ eventId })).deliveries];
    for await (const page of client.exportDeliveries({ eventId })) found.push(...page.deliveries);
    for (const call of [client.getDelivery, client.sendAgain])
      found.push((await call({ deliveryId })).delivery as never);
    expect(found.map(({ id }) => id)).toEqual(Array(4).fill(deliveryId));
    expect([...found, event].map((each) => each?.subject)).toEqual(Array(5).fill(subject));
  }
});
