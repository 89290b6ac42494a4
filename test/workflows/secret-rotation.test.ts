import { randomBytes } from "node:crypto";
import { Webhook } from "standardwebhooks";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { createSecretBox, WEBHOOK_SECRET_PURPOSE } from "../../src/db/webhooks/secret-box.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

const secretKey = randomBytes(32);
let service: TestService;
beforeAll(async () => {
  service = await startTestService({ ...WOKEN, SECRET_KEY: secretKey.toString("base64") });
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

test("deliveries are signed with a secret that an earlier version sealed, and not with one of another webhook", async () => {
  const receiver = await service.receiver();
  const register = (path: string) => service.register(`${receiver.url}/${path}`);
  const [legacy, a, b] = [await register("legacy"), await register("a"), await register("b")];
  const bytes = randomBytes(32);
  const sealed = createSecretBox(secretKey).seal(bytes, WEBHOOK_SECRET_PURPOSE);
  await service.db.raw("update webhooks set secret = ? where id = ?", [sealed, String(legacy)]);
  // Opened before they are swapped, so that what a process keeps in memory is no help.
  const first = await service.publish();
  const states = async (eventId: string) =>
    new Map((await service.untilFinal(eventId)).map(({ webhookId, state }) => [webhookId, state]));
  const before = await states(first.eventId);
  for (const id of [legacy, a, b]) expect(before.get(id)).toBe(DeliveryState.DELIVERED);
  const request = receiver.received.find(({ path }) => path === "/legacy");
  const verified = () =>
    new Webhook(bytes.toString("base64")).verify(
      request?.body ?? "",
      request?.headers as Record<string, string>,
    );
  expect(verified).not.toThrow();

  await service.db.raw(
    "update webhooks w set secret = o.secret from webhooks o where w.id in (:a, :b) and o.id in (:a, :b) and w.id <> o.id",
    { a: String(a), b: String(b) },
  );
  const second = await service.publish();
  const after = await states(second.eventId);
  expect(after.get(legacy)).toBe(DeliveryState.DELIVERED);
  for (const id of [a, b]) expect(after.get(id)).toBe(DeliveryState.FAILED);
  const errors = await service.db("all_attempts").whereNotNull("error").distinct().pluck("error");
  expect(errors).toEqual([expect.stringContaining("signing secret cannot be decrypted")]);
});
