import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { expect, test } from "vitest";
import { DeliveryState, type GetDeliveryResponse } from "../../../gen/webhook/v1/delivery_pb.ts";
import { workflowLinks } from "../../../src/temporal/links.ts";
import { changeDelivery, storeDeliveries } from "../../support/stored-deliveries.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;

async function testDelivery(key = api.adminKey) {
  const webhookId = await api.register({ key });
  return (await api.webhooks.sendTestEvent({ webhookId })).deliveryId;
}

const get = (deliveryId: string) => api.deliveries.getDelivery({ deliveryId });

test("a delivery tells the headers and the body that it sends, before it is sent too", async () => {
  const deliveryId = await testDelivery();
  const { request, run } = await get(deliveryId);
  expect(request?.headers.map(({ name, value }) => `${name}: ${value}`)).toEqual([
    "Content-Type: application/json; charset=utf-8",
    "User-Agent: Webhook-Service/1",
    "Accept: */*",
    "Accept-Encoding: identity",
    `X-Service-Webhook-Id: ${deliveryId}`,
    "X-Service-Webhook-Process: OrderDispatched",
    "X-Service-Webhook-Test: true",
    `webhook-id: ${deliveryId}`,
  ]);
  expect(JSON.parse(request?.body ?? "")).toMatchObject({ OrderId: 1001 });
  expect(run).toBeUndefined();
});

test("a webhook of an installed app gets the user; a delivery whose payload was erased says so and has its headers", async () => {
  const { secret } = await api.key({ installedAppId: await api.app() });
  const deliveryId = await testDelivery(secret);
  expect((await get(deliveryId)).request?.erased).toBe(false);
  const { event_id } = await db("queue").where("id", deliveryId).first();
  await db("events").where("id", event_id).update({ payload: null });
  const { request } = await get(deliveryId);
  expect(request).toMatchObject({ body: "", erased: true });
  const user = { name: "X-Service-UserId", value: "test" };
  expect(request?.headers).toContainEqual(expect.objectContaining(user));
});

test("a successful attempt has the signature headers that were sent, computed again", async () => {
  const deliveryId = await testDelivery();
  await changeDelivery(db, deliveryId, { state: "delivered", attempts: 1, tried: [{ status: 200 }] });
  const [attempt] = (await get(deliveryId)).attempts;
  expect(attempt?.signatureRecomputed).toBe(true);
  const names = ["webhook-timestamp", "webhook-signature"];
  expect(attempt?.signatureHeaders.map(({ name }) => name)).toEqual(names);
});

test("a claimed delivery tells its run, by the workflow and its execution", async () => {
  const deliveryId = await testDelivery();
  const workflow = { workflow_id: "dispatch-pending-deliveries-1", first_run_id: "an-execution" };
  const [{ id }] = await db("runs")
    .insert({ ...workflow, lease_until: new Date() })
    .returning("id");
  await db("queue").where("id", deliveryId).update({ run_id: id });
  const { run } = await get(deliveryId);
  expect(run).toMatchObject({ workflowId: "dispatch-pending-deliveries-1", runId: "an-execution" });
  expect(run?.url).toBeUndefined();
});

test("links to the Temporal UI name the namespace, the workflow and its execution", () => {
  const link = workflowLinks("http://127.0.0.1:8233/", "shop");
  expect(link?.("dispatch 1", "a/b")).toBe(
    "http://127.0.0.1:8233/namespaces/shop/workflows/dispatch%201/a%2Fb",
  );
  expect(workflowLinks(undefined, "shop")).toBeUndefined();
});

const attemptsOf = ({ attempts }: GetDeliveryResponse) =>
  attempts.map((each) => [each.number, each.status, each.error, each.responseStart, each.durationMs]);

test("a delivery is answered with every attempt in order", async () => {
  const url = "https://receiver.example/attempts";
  const [deliveryId = ""] = await storeDeliveries(db, [{ webhookId: await api.register({ url }) }]);
  const retryAt = new Date("2030-01-01T00:00:00Z");
  const started = new Date("2026-01-01T00:00:00.123Z");
  const tried = [
    { started, durationMs: 12, status: 503, responseStart: "busy" },
    { started, durationMs: 15_000, error: "no answer within 15 s" },
  ];
  await changeDelivery(db, deliveryId, { state: "retrying", attempts: 2, tried, retryAt });
  await db("attempts").where({ delivery_id: deliveryId, number: 1 }).update({ timing: "1 2 3 4" });
  const open = await get(deliveryId);
  const [{ timing } = {}, untimed] = open.attempts;
  expect(timing).toMatchObject({ dnsMs: 1, connectMs: 2, tlsMs: 3, firstByteMs: 4 });
  expect([timing?.bodyMs, untimed?.timing]).toEqual([undefined, undefined]);
  const retrying = { webhookProcess: 1, url, state: DeliveryState.RETRYING, attemptCount: 2 };
  expect(open.delivery).toMatchObject(retrying);
  expect(Number(open.delivery?.nextAttempt?.seconds)).toBe(retryAt.getTime() / 1_000);
  expect(attemptsOf(open)).toEqual([
    [1, 503, undefined, "busy", 12],
    [2, undefined, "no answer within 15 s", undefined, 15_000],
  ]);

  // The attempt that ends a delivery is kept in the delivery's own row.
  await db("attempts").where("delivery_id", deliveryId).delete();
  const ending = { started, durationMs: 7, status: 200, responseStart: "ok" };
  await changeDelivery(db, deliveryId, { state: "delivered", attempts: 3, tried: [...tried, ending] });
  const ended = await get(deliveryId);
  expect(ended.delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 3 });
  expect(attemptsOf(ended)).toEqual([...attemptsOf(open), [3, 200, undefined, "ok", 7]]);
  // Nothing was sent where there was no answer.
  expect(ended.attempts.map(({ signatureHeaders }) => signatureHeaders.length > 0)).toEqual([
    true,
    false,
    true,
  ]);
  expect(ended.attempts.map((attempt) => timestampDate(attempt.started as Timestamp))).toEqual(
    Array(3).fill(started),
  );
});
