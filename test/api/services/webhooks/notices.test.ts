import { randomUUID } from "node:crypto";
import { Code, createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { EventService, WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { connect, grpc } from "../../../support/clients.ts";
import { expectRefused } from "../../../support/refusals.ts";
import { freshUrl, useApi } from "../../../support/test-api.ts";

const api = await useApi();
const { WEBHOOK_FAILING, DELIVERY_FAILED } = WebhookProcess;

test("a webhook subscribes to notices over gRPC, Connect and REST as to every other event type", async () => {
  for (const transport of [grpc(api), connect(api)]) {
    const client = createClient(WebhookService, transport);
    const { webhook } = await client.createWebhook({ process: WEBHOOK_FAILING, url: freshUrl() });
    expect(webhook?.webhookProcess).toBe(WEBHOOK_FAILING);
  }
  await api.rest("POST", "/api/webhook", { json: { process: 10_001, url: freshUrl() } });
  const { envelope } = await api.rest("GET", "/api/webhook/list");
  const names = envelope.Data.map((each: { WebhookProcess: string }) => each.WebhookProcess);
  expect(names).toEqual(Array(3).fill("WebhookFailing"));
});

test("a key that may not subscribe to a notice is refused", async () => {
  const client = api.client(WebhookService, (await api.key({ allowedProcesses: [1] })).secret);
  const call = client.createWebhook({ process: DELIVERY_FAILED, url: freshUrl() });
  await expectRefused(
    call,
    Code.PermissionDenied,
    "may not subscribe to DeliveryFailed, only to OrderDispatched",
  );
});

test("the catalogue marks notices; the sample of a failed delivery has an error and no reason", async () => {
  const { processes } = await api.client(WebhookService).listProcesses({});
  const notices = processes.filter(({ notice }) => notice).map(({ name }) => name);
  expect(notices).toEqual(["WebhookFailing", "WebhookRecovered", "WebhookDisabled", "DeliveryFailed"]);
  const sample = JSON.parse(processes.find(({ number }) => number === DELIVERY_FAILED)?.sample ?? "");
  expect(Object.keys(sample).slice(-2)).toEqual(["Reason", "LastError"]);
  expect(sample).toMatchObject({ Attempts: 4, Reason: null, LastError: "HTTP status 503" });
});

test.each(["webhookFailing", "webhook_recovered", "webhookDisabled", "deliveryFailed"])(
  "a caller cannot publish a notice, here %s: the error names the events that callers publish",
  async (name) => {
    const response = await fetch(`${api.url}/webhook.v1.EventService/PublishEvent`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-service-key": api.adminKey },
      body: JSON.stringify({ idempotencyKey: randomUUID(), userId: "u", [name]: { lastError: "made up" } }),
    });
    expect(await response.json()).toMatchObject({
      code: "invalid_argument",
      message: expect.stringMatching(
        new RegExp(
          `${name}.*; only the service publishes notices; allowed: .*orderDispatched, documentCreated, stockLevelChanged$`,
        ),
      ),
    });
  },
);

test("an event without data is refused with the events that callers publish, which notices are not", async () => {
  const call = api.client(EventService).publishEvent({ idempotencyKey: randomUUID(), userId: "u" });
  const allowed = "order_dispatched, document_created, stock_level_changed";
  const { rawMessage } = await expectRefused(call, Code.InvalidArgument, allowed);
  expect(rawMessage).not.toContain("webhook_failing");
});
