import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { startRun } from "../support/start-run.ts";
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

test("a run ends while a paused webhook's retries wait, and the first run after it is resumed makes them", async () => {
  // Runs are those that the test starts.
  const own = await startTestService({ DISPATCH_INTERVAL: "24h" });
  onTestFinished(() => own.stop());
  const receiver = await own.receiver(({ attempt }, response) => {
    if (attempt > 1) return 200;
    // Late enough that the webhook is paused before its retry is due.
    response.writeHead(503, { "retry-after": "5" }).end();
    return undefined;
  });
  const webhookId = await own.register(`${receiver.url}/`);
  const { eventId } = await own.publish();
  const open = async () => (await own.deliveries.listDeliveries({ eventId })).deliveries[0];
  const run = await startRun(own, "before-pause");
  await expect.poll(async () => (await open())?.state).toBe(DeliveryState.RETRYING);
  await own.webhooks.pauseWebhook({ webhookId });
  expect(await run.result()).toMatchObject({ sent: 1, delivered: 0, failed: 0 });
  expect(await (await startRun(own, "while-paused")).result()).toMatchObject({ sent: 0 });
  expect(await open()).toMatchObject({ state: DeliveryState.RETRYING, attemptCount: 1 });

  await own.webhooks.resumeWebhook({ webhookId });
  expect(await (await startRun(own, "after-pause")).result()).toMatchObject({ sent: 1, delivered: 1 });
  expect(await own.untilFinal(eventId)).toMatchObject([{ state: DeliveryState.DELIVERED, attemptCount: 2 }]);
  expect(receiver.received).toHaveLength(2);
});

test("a test event that is sent again waits while its webhook is paused", async () => {
  // Runs are those that the test starts.
  const own = await startTestService({ DISPATCH_INTERVAL: "24h" });
  onTestFinished(() => own.stop());
  const receiver = await own.receiver();
  const webhookId = await own.register(`${receiver.url}/`);
  await own.webhooks.pauseWebhook({ webhookId });
  const { eventId, deliveryId } = await own.webhooks.sendTestEvent({ webhookId });
  expect(await (await startRun(own, "test-event")).result()).toMatchObject({ sent: 1, delivered: 1 });

  await own.deliveries.sendAgain({ deliveryId });
  expect(await (await startRun(own, "while-paused")).result()).toMatchObject({ sent: 0 });
  const { deliveries } = await own.deliveries.listDeliveries({ eventId });
  expect(deliveries).toMatchObject([{ state: DeliveryState.PENDING, attemptCount: 1 }]);
  expect(receiver.received).toHaveLength(1);

  // A new test event is sent, and that one alone.
  await own.webhooks.sendTestEvent({ webhookId });
  expect(await (await startRun(own, "another-test-event")).result()).toMatchObject({ sent: 1, delivered: 1 });
  await own.webhooks.resumeWebhook({ webhookId });
  expect(await (await startRun(own, "after-pause")).result()).toMatchObject({ sent: 1, delivered: 1 });
  expect(await own.untilFinal(eventId)).toMatchObject([{ state: DeliveryState.DELIVERED, attemptCount: 2 }]);
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
