import { expect, test } from "vitest";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { workflowLinks } from "../../../../src/temporal/connection/links.ts";
import { useApi } from "../../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;

async function testDelivery(key = api.adminKey) {
  const webhookId = await api.register({ key });
  return (await api.client(WebhookService).sendTestEvent({ webhookId })).deliveryId;
}

const get = (deliveryId: string) => api.client(DeliveryService).getDelivery({ deliveryId });

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
  const { secret } = await api.key({ installedAppId: await api.app() });
  const { request } = await get(await testDelivery(secret));
  const user = { name: "X-Service-UserId", value: "test" };
  expect(request?.headers).toContainEqual(expect.objectContaining(user));
});

test("a delivery whose payload was erased says so, and tells its headers all the same", async () => {
  const deliveryId = await testDelivery();
  expect((await get(deliveryId)).request?.erased).toBe(false);
  const { event_id } = await db("queue").where("id", deliveryId).first();
  await db("events").where("id", event_id).update({ payload: null });
  const { request } = await get(deliveryId);
  expect(request).toMatchObject({ body: "", erased: true });
  expect(request?.headers).toContainEqual(expect.objectContaining({ name: "webhook-id", value: deliveryId }));
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
