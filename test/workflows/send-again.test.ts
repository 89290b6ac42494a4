import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

let service: TestService;
beforeAll(async () => {
  service = await startTestService(WOKEN);
});
afterAll(() => service.stop());

test("a failed delivery sent again gets four more attempts under the same id, numbered on, and then another round", async () => {
  let status = 500;
  const receiver = await service.receiver(() => status);
  await service.register(`${receiver.url}/`);
  const { eventId } = await service.publish();
  const [failed] = await service.untilFinal(eventId);
  const deliveryId = failed?.id as string;
  expect(failed).toMatchObject({ state: DeliveryState.FAILED, attemptCount: 4 });

  await service.deliveries.sendAgain({ deliveryId });
  expect((await service.untilFinal(eventId))[0]).toMatchObject({
    id: deliveryId,
    state: DeliveryState.FAILED,
    attemptCount: 8,
  });

  status = 200;
  await service.deliveries.sendAgain({ deliveryId });
  expect((await service.untilFinal(eventId))[0]).toMatchObject({
    state: DeliveryState.DELIVERED,
    attemptCount: 9,
  });
  const { attempts } = await service.deliveries.getDelivery({ deliveryId });
  expect(attempts.map((attempt) => [attempt.number, attempt.status])).toEqual([
    ...[1, 2, 3, 4, 5, 6, 7, 8].map((number) => [number, 500]),
    [9, 200],
  ]);
  expect(receiver.received.map(({ headers }) => headers["x-service-webhook-id"])).toEqual(
    Array(9).fill(deliveryId),
  );
});

test("a delivered one sent again arrives again, and so do many by one call", async () => {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/again`);
  const events = await Promise.all([1n, 2n, 3n].map((orderId) => service.publish(orderId)));
  await receiver.until((received) => received.length === 3);
  for (const { eventId } of events) await service.untilFinal(eventId);
  const answer = await service.deliveries.sendAgainMany({ webhookId, states: [DeliveryState.DELIVERED] });
  expect(answer).toMatchObject({ sentAgain: 3, skipped: 0, nextPageToken: "" });
  await receiver.until((received) => received.length === 6);
  const ids = receiver.received.map(({ headers }) => headers["x-service-webhook-id"]);
  expect(new Set(ids).size).toBe(3);
});
