import { Code, createClient } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { ReplayService } from "../../gen/webhook/v1/replay_pb.ts";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { CircuitBreakerState } from "../../gen/webhook/v1/webhook_pb.ts";
import { imbalance, readLedger } from "../../src/db/deliveries/ledger.ts";
import { failure } from "../support/failure.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

const PATIENCE = { timeout: 40_000, interval: 100 };

let service: TestService;
beforeAll(async () => {
  service = await startTestService({
    DISPATCH_INTERVAL: "2s",
    // Retries of the test of circuit breakers are not due.
    RETRY_INITIAL_DELAY: "1h",
  });
});
afterEach(() => service.removeWebhooks());
afterAll(() => service?.stop());

const numbersOf = (received: readonly { body: string }[]) =>
  received.map(({ body }) => JSON.parse(body).OrderId as number).sort((one, other) => one - other);

async function publishAll(ids: readonly number[]) {
  const events = await Promise.all(ids.map((id) => service.publish(BigInt(id))));
  const deliveries = await Promise.all(events.map(({ eventId }) => service.untilFinal(eventId)));
  return { events, deliveries: deliveries.flat() };
}

test("only events that a filter matches are sent; the others end as filtered, and the ledger holds", async () => {
  const receiver = await service.receiver();
  const filtered = await service.register(`${receiver.url}/some`);
  const other = await service.receiver();
  await service.register(`${other.url}/all`);
  await service.webhooks.updateWebhook({ webhookId: filtered, filter: "event.order_id > 5" });
  const { events, deliveries } = await publishAll([1, 2, 3, 4, 5, 6, 7, 8]);
  // Recipients are counted before filters.
  expect(events.map(({ deliveriesQueued }) => deliveriesQueued)).toEqual(Array(8).fill(2));
  expect(numbersOf(receiver.received)).toEqual([6, 7, 8]);
  expect(numbersOf(other.received)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  const own = deliveries.filter(({ webhookId }) => webhookId === filtered);
  const kept = own.filter(({ state }) => state === DeliveryState.FILTERED);
  expect([own.length, kept.length]).toEqual([8, 5]);
  for (const delivery of kept) {
    expect(delivery).toMatchObject({ attemptCount: 0, reason: "filter not matched" });
    expect(delivery.status).toBeUndefined();
  }
  expect(imbalance(await readLedger(service.db))).toBe(0n);

  const listed = await service.deliveries.listDeliveries({ states: [DeliveryState.FILTERED] });
  expect(listed.deliveries).toHaveLength(5);
  const stats = createClient(StatsService, service.transport);
  await expect.poll(async () => (await stats.getOverview({})).overview?.filtered, PATIENCE).toBe(5n);
  const { periods } = await stats.getWebhookStats({ webhookId: filtered });
  expect(periods.map((period) => [period.hours, period.filtered, period.delivered])).toEqual([
    [1, 5n, 3n],
    [24, 5n, 3n],
    [168, 5n, 3n],
  ]);
});

test("what was filtered is sent again once the filter matches it, and no longer counts as filtered", async () => {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/again`);
  await service.webhooks.updateWebhook({ webhookId, filter: "event.order_id == 1" });
  await publishAll([1, 2, 3]);
  expect(numbersOf(receiver.received)).toEqual([1]);
  await service.webhooks.updateWebhook({ webhookId, filter: "event.order_id < 3" });
  const replays = createClient(ReplayService, service.transport);
  await replays.startReplay({
    what: { case: "resend", value: { webhookId, states: [DeliveryState.FILTERED] } },
  });
  await receiver.until((received) => received.length === 2);
  expect(numbersOf(receiver.received)).toEqual([1, 2]);
  await expect
    .poll(async () => {
      const { deliveries } = await service.deliveries.listDeliveries({ webhookId });
      return deliveries.map(({ state }) => state).sort();
    }, PATIENCE)
    .toEqual([DeliveryState.DELIVERED, DeliveryState.DELIVERED, DeliveryState.FILTERED]);
  const stats = createClient(StatsService, service.transport);
  await expect
    .poll(async () => (await stats.getWebhookStats({ webhookId })).periods[0]?.filtered, PATIENCE)
    .toBe(1n);
});

test("a test event is sent whatever the filter, and so is an event for which the filter cannot be evaluated", async () => {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/anyway`);
  await service.webhooks.updateWebhook({ webhookId, filter: "100 / (event.order_id - 1) == 50" });
  await service.webhooks.sendTestEvent({ webhookId });
  await receiver.until((received) => received.length === 1);
  await publishAll([1, 2, 3]);
  expect(numbersOf(receiver.received.slice(1))).toEqual([1, 3]);
});

test("a stored filter with a regular expression that is now too large holds up nothing: its events are sent", async () => {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/too-large`);
  const filter = '!event.order_number.matches("(?:a?b?c?d?e?){1000}$")';
  const set = service.webhooks.updateWebhook({ webhookId, filter });
  expect((await failure(set))?.code).toBe(Code.InvalidArgument);
  await service.db("webhooks").where({ id: webhookId }).update({ filter });
  const { deliveries } = await publishAll([1, 2, 3]);
  expect(deliveries.map(({ state }) => state)).toEqual(Array(3).fill(DeliveryState.DELIVERED));
  expect(numbersOf(receiver.received)).toEqual([1, 2, 3]);
});

test("a filtered delivery is no probe of a circuit breaker: the next one that matches is", async () => {
  let status = 500;
  const receiver = await service.receiver(() => status);
  const webhookId = await service.register(`${receiver.url}/probed`);
  const circuitBreaker = { enabled: true, failures: 1, failingSeconds: 1, probeSeconds: 1 };
  await service.webhooks.updateWebhook({ webhookId, circuitBreaker });
  const state = async () => (await service.webhooks.getWebhook({ webhookId })).webhook?.circuitBreaker?.state;
  await expect
    .poll(
      async () => {
        await service.publish(1n);
        return state();
      },
      { ...PATIENCE, interval: 1_000 },
    )
    .toBe(CircuitBreakerState.OPEN);
  await service.webhooks.updateWebhook({ webhookId, filter: "event.order_id > 100" });
  const waiting = [];
  for (const id of [2n, 3n, 101n]) waiting.push(await service.publish(id));
  status = 200;
  const found = await Promise.all(waiting.map(({ eventId }) => service.untilFinal(eventId)));
  const { DELIVERED, FILTERED } = DeliveryState;
  expect(found.flat().map((delivery) => delivery.state)).toEqual([FILTERED, FILTERED, DELIVERED]);
  await expect.poll(state, PATIENCE).toBe(CircuitBreakerState.CLOSED);
});
