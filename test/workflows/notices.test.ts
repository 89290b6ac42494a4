import { afterAll, beforeAll, expect, test } from "vitest";
import { WebhookProcess } from "../../gen/webhook/v1/event_pb.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ RETRY_INITIAL_DELAY: "1s", RETRY_BACKOFF_COEFFICIENT: "1" });
});
afterAll(() => service?.stop());

test("receivers are told that a webhook fails, that its deliveries have failed and that it has recovered, signed as all else", async () => {
  let status = 503;
  const endpoint = await service.receiver(() => status);
  const webhookId = await service.register(`${endpoint.url}/orders`);
  // Its receiver fails at first itself, of which nothing is told.
  let noticeStatus = 500;
  /** The accepted notices, by their deliveries' ids. */
  const accepted = new Map<string, { process: string; payload: unknown }>();
  const noticed = await service.receiver(({ headers, body }) => {
    if (noticeStatus === 200) {
      const process = String(headers["x-service-webhook-process"]);
      accepted.set(String(headers["x-service-webhook-id"]), { process, payload: JSON.parse(body) });
    }
    return noticeStatus;
  });
  for (const process of [
    WebhookProcess.WEBHOOK_FAILING,
    WebhookProcess.WEBHOOK_RECOVERED,
    WebhookProcess.WEBHOOK_DISABLED,
    WebhookProcess.DELIVERY_FAILED,
  ])
    await service.register(`${noticed.url}/notices`, { process });

  const { eventId } = await service.publish();
  await noticed.until((received) => received.length > 0);
  noticeStatus = 200;
  const [delivery] = await service.untilFinal(eventId);
  const payloadsOf = (process: string) =>
    [...accepted.values()].filter((notice) => notice.process === process).map(({ payload }) => payload);
  await noticed.until(() => payloadsOf("DeliveryFailed").length > 0);
  status = 200;
  await service.publish(2n);
  await noticed.until(() => payloadsOf("WebhookRecovered").length > 0);

  await noticed.until(() => payloadsOf("WebhookFailing").length > 0);
  const payloads = ["WebhookFailing", "DeliveryFailed", "WebhookRecovered"].map(payloadsOf);
  expect(payloads).toMatchObject([
    [{ Webhook: { Id: Number(webhookId) }, HealthBefore: "Healthy", Health: "Failing" }],
    [{ DeliveryId: delivery?.id, EventId: eventId, Attempts: 4, LastError: "HTTP status 503" }],
    [{ Webhook: { Id: Number(webhookId) }, HealthBefore: "Failing" }],
  ]);
});
