import { createClient } from "@connectrpc/connect";
import { Webhook } from "standardwebhooks";
import { afterEach, expect, test } from "vitest";
import type { ReceivedRequest } from "../../demo/receiver.ts";
import { isAuthentic } from "../../docs/examples/verify-public-key.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { EndpointService } from "../../gen/webhook/v1/endpoint_pb.ts";
import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { fileService, WOKEN } from "../support/test-service.ts";
import { eventually } from "../support/wait.ts";

const MAX_PENDING = 3;

const service = fileService({ ...WOKEN, MAX_PENDING_PER_WEBHOOK: String(MAX_PENDING) });
afterEach(() => service.removeWebhooks());

const typeOf = ({ headers }: ReceivedRequest) => headers["x-service-webhook-process"];
const signatureOf = ({ headers }: ReceivedRequest) => headers["webhook-signature"];
const numbersOf = (received: readonly ReceivedRequest[]) =>
  received.map(({ body }) => JSON.parse(body).OrderId as number).sort();

function verifies(secret: string, { body, headers }: ReceivedRequest): boolean {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>);
    return true;
  } catch {
    return false;
  }
}

test("a receiver verifies all event types of its endpoint with one secret or public key, also after a rotation, until the old ones are revoked", async () => {
  const receiver = await service.receiver();
  const endpoints = createClient(EndpointService, service.transport);
  const { endpoint } = await endpoints.createEndpoint({ processes: [1, 2], url: `${receiver.url}/` });
  const [first, second] = (endpoint?.webhooks ?? []).map(({ id }) => id) as [bigint, bigint];
  const secretOf = async (webhookId: bigint) =>
    (await service.webhooks.getWebhookSecret({ webhookId })).secret;
  const keyOf = async (webhookId: bigint) =>
    (await service.webhooks.getWebhookKeyPairs({ webhookId })).keyPairs[0]?.publicKey as string;
  /** Publishes an event of each type; answers their requests, and the event of the first. */
  async function deliver() {
    const before = receiver.received.length;
    const { eventId } = await service.publish();
    await service.publishDocument();
    const received = (await receiver.until(({ length }) => length === before + 2)).slice(before);
    expect(received.map(typeOf).toSorted()).toEqual(["DocumentCreated", "OrderDispatched"]);
    return { received, eventId };
  }

  const old = await secretOf(second);
  for (const request of (await deliver()).received) {
    expect(verifies(old, request)).toBe(true);
    expect(signatureOf(request)).toMatch(/^v1,\S+$/);
  }

  await service.webhooks.rotateWebhookSecret({ webhookId: first });
  await service.webhooks.rotateWebhookKeyPair({ webhookId: second });
  const [next, oldKey] = [await secretOf(second), await keyOf(first)];
  const { received, eventId } = await deliver();
  for (const request of received) {
    expect([verifies(next, request), verifies(old, request)]).toEqual([true, true]);
    expect(isAuthentic(oldKey, request.headers, request.body)).toBe(true);
    expect(isAuthentic(oldKey, request.headers, `${request.body} `)).toBe(false);
    const late = { ...request.headers, "webhook-timestamp": "1700000000" };
    expect(isAuthentic(oldKey, late, request.body)).toBe(false);
  }
  // The log shows the signature that was sent.
  const delivery = (await service.untilFinal(eventId)).find(({ webhookId }) => webhookId === first);
  const { attempts } = await service.deliveries.getDelivery({ deliveryId: delivery?.id as string });
  const sent = received.find(({ headers }) => headers["webhook-id"] === delivery?.id) as ReceivedRequest;
  expect(attempts[0]?.signatureHeaders.map(({ value }) => value)).toContain(signatureOf(sent));

  await service.webhooks.rotateWebhookSecret({ webhookId: second, revokeOldSecrets: true });
  await service.webhooks.rotateWebhookKeyPair({ webhookId: first, revokeOldKeyPairs: true });
  const [last, lastKey] = [await secretOf(first), await keyOf(second)];
  for (const request of (await deliver()).received) {
    expect([last, next, old].map((secret) => verifies(secret, request))).toEqual([true, false, false]);
    const keys = [lastKey, oldKey].map((key) => isAuthentic(key, request.headers, request.body));
    expect(keys).toEqual([true, false]);
  }
  // A test request is signed like a delivery.
  await service.webhooks.tryWebhookRequest({ webhookId: first });
  const tried = receiver.received.at(-1) as ReceivedRequest;
  expect([verifies(last, tried), isAuthentic(lastKey, tried.headers, tried.body)]).toEqual([true, true]);
  await service.webhooks.deleteWebhookKeyPairs({ webhookId: second });
  for (const request of (await deliver()).received) expect(signatureOf(request)).toMatch(/^v1,\S+$/);
});

test("a test event arrives as others do, marked as a test, and the log tells what was sent", async () => {
  const receiver = await service.endpoint();
  const { webhookId } = receiver;
  const { eventId, deliveryId } = await service.webhooks.sendTestEvent({ webhookId });
  const [request] = await receiver.until(({ length }) => length === 1);
  const { processes } = await service.webhooks.listProcesses({});
  expect(request?.body).toBe(processes[0]?.sample);
  expect(request?.rawHeaders.join("\n")).toContain("X-Service-Webhook-Test\ntrue");
  expect(request?.headers["x-service-webhook-id"]).toBe(deliveryId);
  expect(signatureOf(request as ReceivedRequest)).toMatch(/^v1,/);
  await service.untilDelivered(eventId);

  // What was sent is told as it was, but for what each attempt makes anew.
  const { request: told } = await service.deliveries.getDelivery({ deliveryId });
  expect(told?.body).toBe(request?.body);
  const flat = told?.headers.flatMap(({ name, value }) => [name, value]) ?? [];
  expect(request?.rawHeaders.join("\n")).toContain(flat.join("\n"));
  expect(flat.join()).not.toMatch(/signature|timestamp|whsec_/);

  // Receivers see the publisher's trace only with DELIVERY_TRACEPARENT.
  const headers = { traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" };
  await service.events.publishEvent(orderEvent(), { headers });
  const [, event] = await receiver.until(({ length }) => length === 2);
  for (const name of ["x-service-webhook-test", "traceparent"])
    expect(event?.headers).not.toHaveProperty(name);
});

test("only events that a filter matches are sent, and those for which it cannot be evaluated, test events always", async () => {
  const [some, all] = [await service.endpoint(), await service.endpoint()];
  const { webhookId } = some;
  const setFilter = (filter: string) => service.webhooks.updateWebhook({ webhookId, filter });
  /** Publishes orders with these ids; answers the deliveries of the filtered webhook. */
  const publish = async (...ids: number[]) => {
    const events = await Promise.all(ids.map((id) => service.publish(BigInt(id))));
    // Recipients are counted before filters.
    expect(events.map(({ deliveriesQueued }) => deliveriesQueued)).toEqual(ids.map(() => 2));
    const ended = await Promise.all(events.map(({ eventId }) => service.untilFinal(eventId)));
    return ended.flat().filter((delivery) => delivery.webhookId === webhookId);
  };
  await setFilter("event.order_id > 5");
  const filtered = (await publish(4, 5, 6)).filter(({ state }) => state === DeliveryState.FILTERED);
  expect([numbersOf(some.received), numbersOf(all.received)]).toEqual([[6], [4, 5, 6]]);
  expect(filtered.map(({ attemptCount, status, reason }) => [attemptCount, status, reason])).toEqual(
    Array(2).fill([0, undefined, "filter not matched"]),
  );

  await setFilter("100 / (event.order_id - 1) == 50");
  await service.webhooks.sendTestEvent({ webhookId });
  await some.until(({ length }) => length === 2);
  await publish(1, 2, 3);
  expect(numbersOf(some.received.slice(2))).toEqual([1, 3]);
  // As a later version may have stored it.
  const filter = "event.weight > 1";
  await expect(setFilter(filter)).rejects.toThrow("no field weight");
  await service.db("webhooks").where({ id: webhookId }).update({ filter });
  await publish(7);
  expect(numbersOf(some.received.slice(4))).toEqual([7]);
});

test("deliveries beyond MAX_PENDING_PER_WEBHOOK fail as queue full, publishing continues, and they can be sent again", async () => {
  const receiver = await service.endpoint();
  const { webhookId } = receiver;
  await service.webhooks.pauseWebhook({ webhookId });
  const eventIds: string[] = [];
  for (let n = 1; n <= MAX_PENDING + 2; n += 1) eventIds.push((await service.publish()).eventId);
  const beyond = eventIds.slice(MAX_PENDING).reverse();
  const failed = { webhookId, states: [DeliveryState.FAILED] };
  const { deliveries } = await eventually(async () => {
    const listed = await service.deliveries.listDeliveries(failed);
    expect(listed.deliveries).toMatchObject(beyond.map((eventId) => ({ eventId, reason: "queue full" })));
    return listed;
  });
  expect(receiver.received).toHaveLength(0);

  await service.webhooks.resumeWebhook({ webhookId });
  await receiver.until(({ length }) => length === MAX_PENDING);
  for (const { id } of deliveries) await service.deliveries.sendAgain({ deliveryId: id });
  for (const eventId of eventIds) await service.untilDelivered(eventId);
  expect(receiver.received).toHaveLength(eventIds.length);
});

test("notices report that a webhook is failing, that its deliveries have failed and that it has recovered", async () => {
  let status = 503;
  const { webhookId } = await service.endpoint(() => status);
  // Its own failures are no reason for a notice.
  const noticed = await service.receiver(({ attempt }) => (attempt === 1 ? 500 : 200));
  const { WEBHOOK_FAILING, WEBHOOK_RECOVERED, DELIVERY_FAILED } = WebhookProcess;
  for (const process of [WEBHOOK_FAILING, WEBHOOK_RECOVERED, DELIVERY_FAILED])
    await service.register(`${noticed.url}/notices`, { process });
  const accepted = (process: string) =>
    noticed.received
      .filter((request) => request.attempt === 2 && typeOf(request) === process)
      .map(({ body }) => JSON.parse(body));

  const { eventId } = await service.publish();
  const [delivery] = await service.untilFinal(eventId);
  await noticed.until(() => accepted("DeliveryFailed").length > 0 && accepted("WebhookFailing").length > 0);
  status = 200;
  await service.publish();
  await noticed.until(() => accepted("WebhookRecovered").length > 0);
  expect(["WebhookFailing", "DeliveryFailed", "WebhookRecovered"].map(accepted)).toMatchObject([
    [{ Webhook: { Id: Number(webhookId) }, HealthBefore: "Healthy", Health: "Failing" }],
    [{ DeliveryId: delivery?.id, EventId: eventId, Attempts: 4, LastError: "HTTP status 503" }],
    [{ Webhook: { Id: Number(webhookId) }, HealthBefore: "Failing" }],
  ]);
});
