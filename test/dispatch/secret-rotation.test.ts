import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

let service: TestService;
beforeAll(async () => {
  service = await startTestService(WOKEN);
});
afterAll(() => service.stop());

test("after a rotation deliveries satisfy receivers with the new secret and with the old one, until that has expired", async () => {
  const receiver = await service.receiver();
  const webhookId = await service.register(`${receiver.url}/rotated`);
  const { secret: old } = await service.webhooks.getWebhookSecret({ webhookId });
  const deliver = async () => {
    const { eventId } = await service.publish();
    await service.untilFinal(eventId);
    const request = receiver.received.at(-1);
    return (secret: string) =>
      new Webhook(secret).verify(request?.body ?? "", request?.headers as Record<string, string>);
  };
  const before = await deliver();
  expect(() => before(old)).not.toThrow();

  const { secret: next } = await service.webhooks.rotateWebhookSecret({ webhookId });
  const between = await deliver();
  expect(() => between(next)).not.toThrow();
  expect(() => between(old)).not.toThrow();

  await service.db.raw("update webhooks set old_secrets_expire = array[now()] where id = ?", [
    String(webhookId),
  ]);
  const after = await deliver();
  expect(() => after(next)).not.toThrow();
  expect(() => after(old)).toThrow();
});
