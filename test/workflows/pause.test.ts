import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

let service: TestService;
beforeAll(async () => {
  service = await startTestService(WOKEN);
});
afterAll(() => service.stop());

test("a paused webhook gets nothing while others do, and all of it once it is resumed", async () => {
  const [held, other] = [await service.receiver(), await service.receiver()];
  const webhookId = await service.register(`${held.url}/`);
  await service.register(`${other.url}/`);
  await service.webhooks.pauseWebhook({ webhookId });
  const events = [await service.publish(1n), await service.publish(2n)];
  await other.until((received) => received.length === 2);
  expect(held.received).toHaveLength(0);

  await service.webhooks.resumeWebhook({ webhookId });
  await held.until((received) => received.length === 2);
  for (const { eventId } of events) {
    const states = (await service.untilFinal(eventId)).map(({ state }) => state);
    expect(states).toEqual([DeliveryState.DELIVERED, DeliveryState.DELIVERED]);
  }
});

test("a test event arrives as others do, signed and marked as a test, which others are not", async () => {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/tested`);
  const { eventId, deliveryId } = await service.webhooks.sendTestEvent({ webhookId });
  const [request] = await receiver.until((received) => received.length === 1);
  const { processes } = await service.webhooks.listProcesses({});
  expect(request?.body).toBe(processes[0]?.sample);
  expect(request?.rawHeaders).toEqual(expect.arrayContaining(["X-Service-Webhook-Test", "true"]));
  expect(request?.headers["x-service-webhook-id"]).toBe(deliveryId);
  expect(request?.headers["webhook-signature"]).toMatch(/^v1,/);
  expect((await service.untilFinal(eventId))[0]?.state).toBe(DeliveryState.DELIVERED);

  // What was sent is told as it was, but for what each attempt makes anew.
  const { request: told, run } = await service.deliveries.getDelivery({ deliveryId });
  expect(told?.body).toBe(request?.body);
  const flat = told?.headers.flatMap(({ name, value }) => [name, value]) ?? [];
  expect(request?.rawHeaders.join("\n")).toContain(flat.join("\n"));
  expect(flat.join()).not.toMatch(/signature|timestamp|whsec_/);
  const { workflowExecutionInfo } = (
    await service.temporal.workflow.getHandle(run?.workflowId as string, run?.runId).describe()
  ).raw;
  expect(workflowExecutionInfo?.execution?.runId).toBe(run?.runId);

  await service.publish(3n);
  const [, event] = await receiver.until((received) => received.length === 2);
  expect(event?.rawHeaders).not.toContain("X-Service-Webhook-Test");
});
