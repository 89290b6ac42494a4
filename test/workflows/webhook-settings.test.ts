import type { MessageInitShape } from "@bufbuild/protobuf";
import { Webhook } from "standardwebhooks";
import { afterEach, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { SignatureForm, type UpdateWebhookRequestSchema } from "../../gen/webhook/v1/webhook_pb.ts";
import { startRun } from "../support/dispatch-runs.ts";
import { fileService } from "../support/test-service.ts";

const service = fileService({ DISPATCH_INTERVAL: "60s" });
// Each run of a test is one that it has started.
beforeAll(() => service.temporal.schedule.getHandle(service.scheduleId).pause());
afterEach(() => service.removeWebhooks());

type Settings = Omit<MessageInitShape<typeof UpdateWebhookRequestSchema>, "webhookId" | "$typeName">;

/** An endpoint whose webhook has settings. */
async function endpointWith(settings: Settings, reply?: Parameters<typeof service.endpoint>[0]) {
  const endpoint = await service.endpoint(reply);
  await service.webhooks.updateWebhook({ ...settings, webhookId: endpoint.webhookId });
  return endpoint;
}

const runToEnd = async () => (await startRun(service)).result();

test("a retry after a day keeps no run open; a run of that time makes it, and again after the next day", async () => {
  const day = { firstRetrySeconds: 86_400, secondRetrySeconds: 86_400 };
  const { webhookId, received } = await endpointWith(day, ({ attempt }) => (attempt > 2 ? 200 : 503));
  const { eventId } = await service.publish();
  const retries = () => service.db("retries").where({ webhook_id: webhookId });
  for (const attempts of [1, 2]) {
    expect(await runToEnd()).toMatchObject({ sent: 1, delivered: 0, failed: 0, putBack: 0 });
    expect(await retries()).toMatchObject([{ run_id: null, attempts }]);
    // Not before it is due.
    expect(await runToEnd()).toMatchObject({ sent: 0 });
    const waits = service.db.raw("due - now() between interval '23 hours' and interval '27 hours' as waits");
    expect(await retries().select(waits)).toEqual([{ waits: true }]);
    await retries().update({ due: service.db.fn.now() });
  }
  expect(await runToEnd()).toMatchObject({ sent: 1, delivered: 1 });
  const [delivery] = await service.untilFinal(eventId);
  expect(delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 3 });
  expect(new Set(received.map(({ headers }) => headers["x-service-webhook-id"])).size).toBe(1);
});

test("§8: with delays of its own, too, a webhook gets three retries; then its delivery has failed", async () => {
  const second = { firstRetrySeconds: 1, secondRetrySeconds: 1, thirdRetrySeconds: 1 };
  const { received } = await endpointWith(second, () => 503);
  const { eventId } = await service.publish();
  expect(await runToEnd()).toMatchObject({ sent: 4, failed: 1 });
  expect(await service.untilFinal(eventId)).toMatchObject([{ state: DeliveryState.FAILED, attemptCount: 4 }]);
  expect(received).toHaveLength(4);
});

test("a rate of one delivery an hour sends one in an hour, and no run waits for the next", async () => {
  const { webhookId, received } = await endpointWith({ rateLimit: 1, ratePeriodSeconds: 3_600 });
  for (let event = 0; event < 2; event += 1) await service.publish();
  expect(await runToEnd()).toMatchObject({ sent: 1, delivered: 1 });
  expect(await runToEnd()).toMatchObject({ sent: 0 });
  const hourAgo = service.db.raw("now() - interval '1 hour'");
  await service.db("webhooks").where({ id: webhookId }).update({ rate_at: hourAgo });
  expect(await runToEnd()).toMatchObject({ sent: 1, delivered: 1 });
  expect(received).toHaveLength(2);
});

test("a rate of 60 deliveries a minute is sent by one run", async () => {
  await endpointWith({ rateLimit: 60, ratePeriodSeconds: 60 });
  for (let event = 0; event < 3; event += 1) await service.publish();
  expect(await runToEnd()).toMatchObject({ sent: 3, delivered: 3 });
});

test("retries that wait for a slow rate end their run's activity until then", async () => {
  const { webhookId } = await endpointWith({ firstRetrySeconds: 1 }, ({ attempt }) =>
    attempt > 1 ? 200 : 503,
  );
  const { eventId } = await service.publish();
  const run = await startRun(service);
  await expect.poll(() => service.db("retries").where({ webhook_id: webhookId })).toHaveLength(1);
  // Two seconds per token: the retry is due earlier.
  const bucket = { rate_limit: 1, rate_period_seconds: 2, rate_tokens: 0, rate_at: service.db.fn.now() };
  await service.db("webhooks").where({ id: webhookId }).update(bucket);
  expect(await run.result()).toMatchObject({ sent: 2, delivered: 1 });
  expect(await service.untilFinal(eventId)).toMatchObject([{ state: DeliveryState.DELIVERED }]);
});

test("a second signature is on deliveries and test requests, by the secret of one's own", async () => {
  const bytes = Buffer.from("It's a Secret to Everybody");
  const { webhookId, received } = await endpointWith({ signatureForm: SignatureForm.SVIX });
  const secret = `whsec_${bytes.toString("base64")}`;
  await service.webhooks.rotateWebhookSecret({ webhookId, secret, revokeOldSecrets: true });
  await service.webhooks.tryWebhookRequest({ webhookId });
  await service.publish();
  await runToEnd();
  expect(received).toHaveLength(2);
  for (const { headers, body } of received) {
    const named = ["id", "timestamp", "signature"].map((name) => [
      `webhook-${name}`,
      headers[`svix-${name}`],
    ]);
    new Webhook(bytes.toString("base64")).verify(body, Object.fromEntries(named));
    expect(headers["svix-signature"]).toBe(headers["webhook-signature"]);
  }
  await service.webhooks.updateWebhook({ webhookId, signatureForm: 0 });
  await service.publish();
  await runToEnd();
  expect(received[2]?.headers).not.toHaveProperty("svix-id");
});
