import { randomUUID } from "node:crypto";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { workflowLinks } from "../../../../src/temporal/connection/links.ts";
import { grpc } from "../../../support/clients.ts";
import { startTestApi, type TestApi } from "../../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

async function testDelivery(key?: string) {
  const webhooks = createClient(WebhookService, grpc(api, key));
  const url = `https://receiver.example/${randomUUID()}`;
  const { webhook } = await webhooks.createWebhook({ process: 1, url });
  return (await webhooks.sendTestEvent({ webhookId: webhook?.id as bigint })).deliveryId;
}

const get = (deliveryId: string) => createClient(DeliveryService, grpc(api)).getDelivery({ deliveryId });

test("a delivery tells the headers and the body that it sends, before it is sent too", async () => {
  const deliveryId = await testDelivery();
  const { request, run } = await get(deliveryId);
  expect(request?.headers.map(({ name, value }) => `${name}: ${value}`)).toEqual([
    "Content-Type: application/json; charset=utf-8",
    "User-Agent: Webhook-Service/1",
    "Accept-Encoding: identity",
    `X-Service-Webhook-Id: ${deliveryId}`,
    "X-Service-Webhook-Process: OrderDispatched",
    "X-Service-Webhook-Test: true",
    `webhook-id: ${deliveryId}`,
  ]);
  expect(JSON.parse(request?.body ?? "")).toMatchObject({ OrderId: 1001 });
  expect(run).toBeUndefined();
});

test("the user is among the headers of an installed app's webhook", async () => {
  const [app] = await api.context
    .db("installed_apps")
    .insert({ id: randomUUID(), name: "App" })
    .returning("id");
  const { secret } = await api.key({ installedAppId: app?.id as string });
  const { request } = await get(await testDelivery(secret));
  expect(request?.headers).toContainEqual(
    expect.objectContaining({ name: "X-Service-UserId", value: "test" }),
  );
});

test("a delivery whose payload was erased says so, and tells its headers all the same", async () => {
  const deliveryId = await testDelivery();
  expect((await get(deliveryId)).request?.erased).toBe(false);
  const { event_id } = await api.context.db("queue").where("id", deliveryId).first();
  await api.context.db("events").where("id", event_id).update({ payload: null });
  const { request } = await get(deliveryId);
  expect(request).toMatchObject({ body: "", erased: true });
  expect(request?.headers).toContainEqual(expect.objectContaining({ name: "webhook-id", value: deliveryId }));
});

test("a claimed delivery tells its run, by the workflow and its execution", async () => {
  const deliveryId = await testDelivery();
  const { db } = api.context;
  const [{ id }] = await db("runs")
    .insert({
      workflow_id: "dispatch-pending-deliveries-1",
      first_run_id: "an-execution",
      lease_until: new Date(),
    })
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
