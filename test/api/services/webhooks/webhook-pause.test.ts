import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { DeliveryService, DeliveryState } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { failure } from "../../../support/failure.ts";
import { ONLY, useApi } from "../../../support/test-api.ts";

const api = await useApi();
const webhooks = api.client(WebhookService);

const listed = async (id: bigint) =>
  (await webhooks.listWebhooks({})).webhooks.find((webhook) => webhook.id === id);

test("a webhook is paused and resumed, and the list says since when it is paused", async () => {
  const webhookId = await api.register();
  expect((await listed(webhookId))?.paused).toBeUndefined();
  const { webhook } = await webhooks.pauseWebhook({ webhookId });
  const since = webhook?.paused;
  expect(Math.abs((since ? timestampDate(since).getTime() : 0) - Date.now())).toBeLessThan(60_000);
  expect((await listed(webhookId))?.paused).toEqual(since);
  const resumed = await webhooks.resumeWebhook({ webhookId });
  expect(resumed.webhook?.paused).toBeUndefined();
  expect((await listed(webhookId))?.paused).toBeUndefined();
});

test("pausing what is paused and resuming what is not change nothing", async () => {
  const webhookId = await api.register();
  const untouched = await listed(webhookId);
  expect((await webhooks.resumeWebhook({ webhookId })).webhook).toEqual(untouched);
  const { webhook } = await webhooks.pauseWebhook({ webhookId });
  expect((await webhooks.pauseWebhook({ webhookId })).webhook).toEqual(webhook);
});

test("REST answers a paused webhook with the contract's fields and no more", async () => {
  const webhookId = await api.register();
  await webhooks.pauseWebhook({ webhookId });
  const { envelope } = await api.rest("GET", "/api/webhook/list");
  const found = envelope.Data.find((webhook: { Id: number }) => webhook.Id === Number(webhookId));
  expect(Object.keys(found)).toEqual(["Id", "Created", "Modified", "WebhookProcess", "Url", "Application"]);
});

test("a test event queues one delivery of the catalogue's sample, for this webhook and no other", async () => {
  const [webhookId] = [await api.register(), await api.register()];
  const { eventId, deliveryId } = await webhooks.sendTestEvent({ webhookId });
  const { deliveries } = await api.client(DeliveryService).listDeliveries({ eventId });
  expect(deliveries).toEqual([
    expect.objectContaining({ id: deliveryId, eventId, webhookId, state: DeliveryState.PENDING }),
  ]);
  const { processes } = await webhooks.listProcesses({});
  const stored = await api.context.db("events").where("id", eventId).first();
  expect(stored).toMatchObject({ payload: processes[0]?.sample, process: 1, test: true });
});

test("a test event has the event type and payload that the call gives, and a payload that cannot be sent is refused", async () => {
  const webhookId = await api.register();
  await webhooks.pauseWebhook({ webhookId });
  const payload = '{"Id": 9007199254740993}';
  const { eventId, deliveryId } = await webhooks.sendTestEvent({ webhookId, process: 3, payload });
  const stored = await api.context.db("events").where("id", eventId).first();
  expect(stored).toMatchObject({ payload, process: 3, test: true });
  const { request } = await api.client(DeliveryService).getDelivery({ deliveryId });
  const name = request?.headers.find((header) => header.name === "X-Service-Webhook-Process")?.value;
  expect([request?.body, name]).toEqual([payload, "StockLevelChanged"]);
  const wrong: [object, RegExp][] = [
    [{ payload: "{" }, /^payload is not valid JSON/],
    [{ payload: "[]" }, /must be a JSON object/],
    [{ payload: "" }, /is not valid JSON/],
    [{ payload: `{"a": "${"x".repeat(32_768)}"}` }, /is 32777 bytes, more than the 32768 allowed/],
    [{ process: 99 }, /99 is not an event type; allowed: 1/],
  ];
  for (const [change, message] of wrong) {
    const refused = await failure(webhooks.sendTestEvent({ webhookId, ...change }));
    expect([refused?.code, refused?.rawMessage]).toEqual([
      Code.InvalidArgument,
      expect.stringMatching(message),
    ]);
  }
  const narrow = await api.key({ allowedProcesses: [1] });
  const client = api.client(WebhookService, narrow.secret);
  expect((await failure(client.sendTestEvent({ webhookId, process: 2 })))?.code).toBe(Code.PermissionDenied);
  expect((await client.sendTestEvent({ webhookId, process: 1 })).deliveryId).not.toBe("");
});

test("webhooks that are not there can be neither paused, resumed nor tested", async () => {
  const webhookId = await api.register();
  await webhooks.deleteWebhook({ webhookId });
  for (const id of [webhookId, 4_000_000_000n]) {
    const calls = [webhooks.pauseWebhook, webhooks.resumeWebhook, webhooks.sendTestEvent];
    const refused = await Promise.all(calls.map((call) => failure(call({ webhookId: id }))));
    expect(refused.map((error) => error?.code)).toEqual(calls.map(() => Code.NotFound));
  }
  expect((await failure(webhooks.pauseWebhook({})))?.code).toBe(Code.InvalidArgument);
});

test("pausing, resuming and testing take Write_Administrative_Data", async () => {
  const webhookId = await api.register();
  const { secret } = await api.key({ permissions: [...ONLY.read, ...ONLY.publish, ...ONLY.manage] });
  const reader = api.client(WebhookService, secret);
  for (const call of [reader.pauseWebhook, reader.resumeWebhook, reader.sendTestEvent]) {
    expect((await failure(call({ webhookId })))?.code).toBe(Code.PermissionDenied);
  }
  const writer = api.client(WebhookService, (await api.key({ permissions: ONLY.write })).secret);
  await writer.pauseWebhook({ webhookId });
  await writer.resumeWebhook({ webhookId });
  expect((await writer.sendTestEvent({ webhookId })).deliveryId).not.toBe("");
});
