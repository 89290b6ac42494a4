import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ ...WOKEN, MAX_PENDING_PER_WEBHOOK: "3" });
});
afterAll(() => service.stop());

test("what waits beyond MAX_PENDING_PER_WEBHOOK fails as queue full, publishing goes on, and it can be sent again", async () => {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/`);
  await service.webhooks.pauseWebhook({ webhookId });
  const eventIds: string[] = [];
  for (let n = 1; n <= 5; n += 1) eventIds.push((await service.publish(BigInt(n))).eventId);
  const failed = async () =>
    (await service.deliveries.listDeliveries({ states: [DeliveryState.FAILED] })).deliveries.map(
      ({ eventId, reason }) => ({ eventId, reason }),
    );
  await expect
    .poll(failed)
    .toEqual([
      expect.objectContaining({ eventId: eventIds[4], reason: "queue full" }),
      expect.objectContaining({ eventId: eventIds[3], reason: "queue full" }),
    ]);
  expect(receiver.received).toHaveLength(0);

  await service.webhooks.resumeWebhook({ webhookId });
  await receiver.until((received) => received.length === 3);
  const { deliveries } = await service.deliveries.listDeliveries({ states: [DeliveryState.FAILED] });
  for (const { id } of deliveries) await service.deliveries.sendAgain({ deliveryId: id });
  await receiver.until((received) => received.length === 5);
  for (const eventId of eventIds)
    expect((await service.untilFinal(eventId))[0]?.state).toBe(DeliveryState.DELIVERED);
});
