import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { DeliveryState } from "../../../gen/webhook/v1/delivery_pb.ts";
import { expectRefused } from "../../support/refusals.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { webhooks, deliveries } = api;

test("a test event queues one delivery of the catalogue's sample, for this webhook and no other", async () => {
  const [webhookId] = [await api.register(), await api.register()];
  const { eventId, deliveryId } = await webhooks.sendTestEvent({ webhookId });
  const { deliveries: found } = await deliveries.listDeliveries({ eventId });
  expect(found).toMatchObject([{ id: deliveryId, eventId, webhookId, state: DeliveryState.PENDING }]);
  const { processes } = await webhooks.listProcesses({});
  const stored = await db("events").where("id", eventId).first();
  expect(stored).toMatchObject({ payload: processes[0]?.sample, process: 1, test: true });
});

test("a test event has the event type and payload that the call gives; a payload that is no JSON object is refused", async () => {
  const webhookId = await api.register();
  await webhooks.pauseWebhook({ webhookId });
  const payload = '{"Id": 9007199254740993}';
  const { eventId, deliveryId } = await webhooks.sendTestEvent({ webhookId, process: 3, payload });
  expect(await db("events").where("id", eventId).first()).toMatchObject({ payload, process: 3, test: true });
  const { request } = await deliveries.getDelivery({ deliveryId });
  const process = { name: "X-Service-Webhook-Process", value: "StockLevelChanged" };
  expect(request?.body).toBe(payload);
  expect(request?.headers).toContainEqual(expect.objectContaining(process));
  for (const [wrong, message] of [
    ["{", /^payload is not valid JSON/],
    ["", /is not valid JSON/],
    ["[]", /must be a JSON object/],
  ] as const)
    await expectRefused(webhooks.sendTestEvent({ webhookId, payload: wrong }), Code.InvalidArgument, message);
});

test("a key sends test events of the event types that it may subscribe to", async () => {
  const webhookId = await api.register();
  const client = api.as((await api.key({ allowedProcesses: [1] })).secret).webhooks;
  await expectRefused(client.sendTestEvent({ webhookId, process: 2 }), Code.PermissionDenied);
  expect((await client.sendTestEvent({ webhookId, process: 1 })).deliveryId).not.toBe("");
});
