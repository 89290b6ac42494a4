import { randomUUID } from "node:crypto";
import { Code, createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { EventService, WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { connect, grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { useApi } from "../../../support/test-api.ts";

const NOTICES = ["WebhookFailing", "WebhookRecovered", "WebhookDisabled", "DeliveryFailed"];

const api = await useApi();

test("a webhook subscribes to notices over gRPC, Connect and REST as to every other event type", async () => {
  const created: string[] = [];
  for (const client of [grpc(api), connect(api)].map((transport) =>
    createClient(WebhookService, transport),
  )) {
    const url = `https://receiver.example/${randomUUID()}`;
    const { webhook } = await client.createWebhook({ process: WebhookProcess.WEBHOOK_FAILING, url });
    expect(webhook?.webhookProcess).toBe(WebhookProcess.WEBHOOK_FAILING);
    created.push(url);
  }
  const url = `https://receiver.example/${randomUUID()}`;
  const { status, envelope } = await api.rest("POST", "/api/webhook", { json: { process: 10_001, url } });
  expect([status, envelope.Data.WebhookProcess]).toEqual([200, "WebhookFailing"]);
  const { envelope: list } = await api.rest("GET", "/api/webhook/list");
  const named = new Map(
    list.Data.map((each: { Url: string; WebhookProcess: string }) => [each.Url, each.WebhookProcess]),
  );
  for (const each of [...created, url]) expect(named.get(each)).toBe("WebhookFailing");
});

test("a key that may not subscribe to a notice is refused", async () => {
  const { secret } = await api.key({ allowedProcesses: [1] });
  const client = api.client(WebhookService, secret);
  const error = await failure(
    client.createWebhook({
      process: WebhookProcess.DELIVERY_FAILED,
      url: "https://receiver.example/refused",
    }),
  );
  expect(error?.code).toBe(Code.PermissionDenied);
  expect(error?.rawMessage).toContain("may not subscribe to DeliveryFailed, only to OrderDispatched");
});

test("the catalogue marks notices; REST answers for event types have no further property", async () => {
  const { processes } = await api.client(WebhookService).listProcesses({});
  expect(processes.filter(({ notice }) => notice).map(({ name }) => name)).toEqual(NOTICES);
  const { envelope } = await api.rest("GET", "/api/webhook/processes");
  for (const type of envelope.Data)
    expect(Object.keys(type)).toEqual(["Number", "Name", "Description", "Sample", "Schema"]);
});

test("the sample of a failed delivery ends by a failed attempt, so it has an error and no reason", async () => {
  const { envelope } = await api.rest("GET", "/api/webhook/processes");
  const { Sample } = envelope.Data.find((type: { Name: string }) => type.Name === "DeliveryFailed");
  expect(Object.keys(Sample).slice(-2)).toEqual(["Reason", "LastError"]);
  expect(Sample).toMatchObject({ Attempts: 4, Reason: null, LastError: "HTTP status 503" });
});

test("a caller cannot publish a notice: the error names the events that callers publish", async () => {
  const path = "/webhook.v1.EventService/PublishEvent";
  const publish = (data: object) =>
    fetch(`${api.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", "x-service-key": api.adminKey },
      body: JSON.stringify({ idempotencyKey: randomUUID(), userId: "tenant-1", ...data }),
    });
  for (const name of ["webhookFailing", "webhook_recovered", "webhookDisabled", "deliveryFailed"]) {
    const refused = await publish({ [name]: { lastError: "made up" } });
    expect(refused.status).toBe(400);
    const { code, message } = (await refused.json()) as { code: string; message: string };
    expect(code).toBe("invalid_argument");
    expect(message).toContain(name);
    expect(message).toMatch(
      /; only the service publishes notices; allowed: .*orderDispatched, documentCreated, stockLevelChanged$/,
    );
  }
  // In binary protobuf, a member that the request lacks is no member.
  const error = await failure(
    api.client(EventService).publishEvent({ idempotencyKey: randomUUID(), userId: "tenant-1" }),
  );
  expect(error?.code).toBe(Code.InvalidArgument);
  expect(error?.rawMessage).toContain("order_dispatched, document_created, stock_level_changed");
  expect(error?.rawMessage).not.toContain("webhook_failing");
  expect(await api.context.db("events")).toEqual([]);
});
