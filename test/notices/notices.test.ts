import { expect, test } from "vitest";
import { startRound } from "../../src/log/send-again.ts";
import { endBeyond } from "../../src/queue/endings.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { claim, record } from "../queue/queue.ts";
import {
  DELIVERY_FAILED,
  useNotices,
  WEBHOOK_DISABLED,
  WEBHOOK_FAILING,
  WEBHOOK_RECOVERED,
} from "./notice-parts.ts";

const { db, BREAKER, register, answeredGone, publish, attemptAll, failRetries, notices, sent, admin } =
  await useNotices();

test("a webhook that fails and recovers causes one notice each, with its health before and after", async () => {
  const webhookId = await register(admin());
  await updateWebhook(db, "everything", webhookId, { name: "Shop" });
  const failing = await register(admin(), WEBHOOK_FAILING);
  const recovered = await register(admin(), WEBHOOK_RECOVERED);
  await publish(admin(), 3);
  const deliveries = await claim(db);
  for (const [n, status] of [503, 500, 200].entries()) {
    await record(db, deliveries.slice(n, n + 1), status);
    await notices();
  }
  expect(await sent()).toEqual([
    [WEBHOOK_FAILING, [failing]],
    [WEBHOOK_RECOVERED, [recovered]],
  ]);
  const [began, ended] = (await notices()).map(({ payload }) => payload);
  const Webhook = { Id: Number(webhookId), Name: "Shop", Host: "shop.example", Application: null };
  const failed = { HealthBefore: "Healthy", Health: "Failing", LastError: "HTTP status 503" };
  expect(began).toMatchObject({ Webhook, ...failed });
  const healthy = { HealthBefore: "Failing", Health: "Degraded", LastError: "HTTP status 500" };
  expect(ended).toMatchObject({ ...healthy, FailingSince: began.Since });
});

test("a webhook disabled by its circuit breaker causes one notice with the reason", async () => {
  const webhookId = await register(admin());
  const subscriber = await register(admin(), WEBHOOK_DISABLED);
  await updateWebhook(db, "everything", webhookId, { breaker: BREAKER });
  await publish(admin(), 1);
  await attemptAll(410);
  await answeredGone(webhookId);
  const found = await notices();
  const reasons = { Reason: "the endpoint answered 410 Gone", LastError: "HTTP status 410" };
  const payload = { Webhook: { Id: Number(webhookId) }, Health: "Failing", ...reasons };
  expect(found).toMatchObject([{ process: WEBHOOK_DISABLED, webhooks: [subscriber], payload }]);
  expect(await notices()).toEqual(found);
});

test("each failed delivery causes one notice, of the user of its event, and another one when it fails again", async () => {
  const webhookId = await register(admin());
  const subscriber = await register(admin(), DELIVERY_FAILED);
  await publish(admin(), 2);
  const deliveries = await claim(db);
  await record(db, deliveries, 503);
  expect(await notices()).toEqual([]);
  await failRetries();
  const found = await notices();
  const about = deliveries.map(({ id, eventId }) => [id, eventId]).sort();
  expect(found.map(({ payload }) => [payload.DeliveryId, payload.EventId]).sort()).toEqual(about);
  const why = { Attempts: 4, Reason: null, LastError: "HTTP status 503" };
  const payload = { Webhook: { Id: Number(webhookId) }, EventType: "OrderDispatched", ...why };
  const notice = { process: DELIVERY_FAILED, webhooks: [subscriber], userId: "tenant-7", payload };
  expect(found).toMatchObject([notice, notice]);

  // The notices themselves are delivered.
  await attemptAll(200);
  const DeliveryId = found[0]?.payload.DeliveryId;
  expect(await startRound(db, "everything", [DeliveryId], 30)).toHaveLength(1);
  await attemptAll(502);
  await failRetries();
  expect((await notices()).slice(2)).toMatchObject([{ payload: { DeliveryId, Attempts: 8 } }]);
});

test("a delivery that fails without an attempt causes a notice with the reason", async () => {
  await register(admin());
  await register(admin(), DELIVERY_FAILED);
  await publish(admin(), 3);
  expect(await endBeyond(db, 2, 100)).toBe(1);
  expect(await notices()).toMatchObject([
    { payload: { Attempts: 0, Reason: "queue full", LastError: null } },
  ]);
});
