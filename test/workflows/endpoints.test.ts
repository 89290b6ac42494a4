import { randomUUID } from "node:crypto";
import { type Client, createClient } from "@connectrpc/connect";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { ReceivedRequest } from "../../demo/receiver.ts";
import { isAuthentic } from "../../docs/examples/verify-public-key.ts";
import { type Endpoint, EndpointService } from "../../gen/webhook/v1/endpoint_pb.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

let service: TestService;
let endpoints: Client<typeof EndpointService>;
let events: Client<typeof EventService>;
beforeAll(async () => {
  service = await startTestService(WOKEN);
  endpoints = createClient(EndpointService, service.transport);
  events = createClient(EventService, service.transport);
});
afterAll(() => service.stop());

/** Publishes an event of each of two types. */
async function publishBoth(): Promise<void> {
  await service.publish();
  await events.publishEvent({
    idempotencyKey: randomUUID(),
    userId: "tenant-1",
    data: {
      case: "documentCreated",
      value: { documentId: 5n, kind: 1, number: "INV-1", createdAt: { seconds: 1n, nanos: 0 } },
    },
  });
}

const typeOf = ({ headers }: ReceivedRequest) => headers["x-service-webhook-process"];
const verifies = (secret: string, { body, headers }: ReceivedRequest): boolean => {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>);
    return true;
  } catch {
    return false;
  }
};

test("a receiver verifies both event types of its endpoint with one secret, before and after a rotation", async () => {
  const receiver = await service.receiver();
  const { endpoint } = await endpoints.createEndpoint({ processes: [1, 2], url: `${receiver.url}/hooks` });
  const [first, second] = (endpoint as Endpoint).webhooks.map(({ id }) => id) as [bigint, bigint];
  const { secret: old } = await service.webhooks.getWebhookSecret({ webhookId: second });
  await publishBoth();
  const before = await receiver.until((received) => received.length === 2);
  expect(before.map(typeOf).toSorted()).toEqual(["DocumentCreated", "OrderDispatched"]);
  expect(before.map((request) => verifies(old, request))).toEqual([true, true]);

  const { secret: next } = await service.webhooks.rotateWebhookSecret({ webhookId: first });
  await service.webhooks.rotateWebhookKeyPair({ webhookId: second });
  const { keyPairs } = await service.webhooks.getWebhookKeyPairs({ webhookId: first });
  await publishBoth();
  const between = (await receiver.until((received) => received.length === 4)).slice(2);
  for (const request of between) {
    // Both sign for a day.
    expect([verifies(next, request), verifies(old, request)]).toEqual([true, true]);
    expect(isAuthentic(keyPairs[0]?.publicKey as string, request.headers as never, request.body)).toBe(true);
  }

  await service.webhooks.rotateWebhookSecret({ webhookId: second, revokeOldSecrets: true });
  const { secret: last } = await service.webhooks.getWebhookSecret({ webhookId: first });
  await publishBoth();
  const after = (await receiver.until((received) => received.length === 6)).slice(4);
  for (const request of after)
    expect([verifies(last, request), verifies(next, request)]).toEqual([true, false]);
  await service.removeWebhooks();
});

test("an event type that is added gets the next event, signed and addressed as the others, and one that is removed gets none", async () => {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/grown`);
  const settings = { headers: [{ name: "X-Tenant", value: "4711" }] };
  await service.webhooks.setWebhookRequestSettings({ webhookId, settings });
  const { secret } = await service.webhooks.getWebhookSecret({ webhookId });
  const target = { case: "webhookId" as const, value: webhookId };
  await endpoints.updateEndpoint({ target, addProcesses: [2] });
  await publishBoth();
  const received = await receiver.until((received) => received.length === 2);
  for (const request of received) {
    expect([verifies(secret, request), request.headers["x-tenant"], request.path]).toEqual([
      true,
      "4711",
      "/grown",
    ]);
  }
  await endpoints.updateEndpoint({ target, removeProcesses: [2] });
  await publishBoth();
  const [, , ...later] = await receiver.until((received) => received.length === 3);
  expect(later.map(typeOf)).toEqual(["OrderDispatched"]);
  await service.removeWebhooks();
});

test("pausing one event type pauses the endpoint, and resuming another one sends what waited", async () => {
  const [held, other] = [await service.receiver(), await service.receiver()];
  const { endpoint } = await endpoints.createEndpoint({ processes: [1, 2], url: `${held.url}/` });
  await service.register(`${other.url}/`);
  const [first, second] = (endpoint as Endpoint).webhooks.map(({ id }) => id) as [bigint, bigint];
  await service.webhooks.pauseWebhook({ webhookId: first });
  await publishBoth();
  await other.until((received) => received.length === 1);
  expect(held.received).toHaveLength(0);
  await service.webhooks.resumeWebhook({ webhookId: second });
  const received = await held.until((received) => received.length === 2);
  expect(received.map(typeOf).toSorted()).toEqual(["DocumentCreated", "OrderDispatched"]);
  await service.removeWebhooks();
});
