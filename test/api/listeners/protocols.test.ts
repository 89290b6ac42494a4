import { randomUUID } from "node:crypto";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Health, HealthCheckResponse_ServingStatus as Status } from "../../../gen/health/v1/health_pb.ts";
import { EventService, WebhookProcessSchema } from "../../../gen/webhook/v1/event_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { grpc, PROTOCOLS } from "../../support/clients.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

const EVENT_TYPES = WebhookProcessSchema.values
  .slice(1)
  .map(({ name }) => name)
  .join(", ");

describe.each(PROTOCOLS)("over %s", (name, transport) => {
  const failure = (call: Promise<unknown>) =>
    call.then(
      () => undefined,
      (error: unknown) => ConnectError.from(error),
    );

  test("webhooks are created, listed and deleted", async () => {
    const webhooks = createClient(WebhookService, transport(api));
    const url = `https://receiver.example/${encodeURIComponent(name)}`;
    const { webhook, created } = await webhooks.createWebhook({ process: 1, url });
    expect([webhook?.url, created]).toEqual([url, true]);
    expect((await webhooks.listWebhooks({})).webhooks).toContainEqual(webhook);
    expect((await webhooks.deleteWebhook({ webhookId: webhook?.id as bigint })).webhook?.id).toBe(
      webhook?.id,
    );
  });

  test("events are published", async () => {
    const events = createClient(EventService, transport(api));
    const answer = await events.publishEvent({
      idempotencyKey: randomUUID(),
      userId: "u",
      data: {
        case: "orderDispatched",
        value: { orderId: 2n ** 62n + 1n, orderNumber: "1", dispatchedAt: { seconds: 1n } },
      },
    });
    const { payload } = await api.context.db("events").where("id", answer.eventId).first();
    expect(payload).toContain('"OrderId":4611686018427387905,');
  });

  test("errors have the same codes and words", async () => {
    const webhooks = createClient(WebhookService, transport(api));
    const missing = await failure(webhooks.deleteWebhook({ webhookId: 4711n }));
    expect([missing?.code, missing?.rawMessage]).toEqual([
      Code.NotFound,
      "there is no webhook 4711; list the webhooks to find its Id",
    ]);
    const unknown = await failure(createClient(WebhookService, transport(api, "unknown")).listWebhooks({}));
    expect(unknown?.code).toBe(Code.Unauthenticated);
    const invalid = await failure(webhooks.createWebhook({}));
    expect([invalid?.code, invalid?.rawMessage]).toEqual([
      Code.InvalidArgument,
      `process is required and must not be 0; allowed: ${EVENT_TYPES}; url is required and must not be empty`,
    ]);
  });

  test("health is told, and watched until the service stops", async () => {
    expect((await createClient(Health, transport(api)).check({})).status).toBe(Status.SERVING);
  });
});

test("a message above 64 KiB is refused", async () => {
  const webhooks = createClient(WebhookService, grpc(api));
  const refused = await webhooks
    .createWebhook({ process: 1, url: "x".repeat(64 * 1024) })
    .catch(ConnectError.from);
  expect((refused as ConnectError).code).toBe(Code.ResourceExhausted);
});

test("watching a service that there is not answers SERVICE_UNKNOWN, as the health protocol says", async () => {
  const gone = new AbortController();
  for await (const { status } of createClient(Health, grpc(api)).watch(
    { service: "nope" },
    { signal: gone.signal },
  )) {
    expect(status).toBe(Status.SERVICE_UNKNOWN);
    break;
  }
  gone.abort();
});

test("a read can be made by GET, as Connect allows for methods without side effects", async () => {
  const query = new URLSearchParams({ connect: "v1", encoding: "json", message: "{}" });
  const url = `${api.url}/webhook.v1.WebhookService/ListWebhooks?${query}`;
  const answer = await fetch(url, { headers: { "X-Service-Key": api.adminKey } });
  expect(answer.status).toBe(200);
  expect((await fetch(url)).status).toBe(401);
});
