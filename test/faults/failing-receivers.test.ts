import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { WebhookHealth } from "../../gen/webhook/v1/webhook_pb.ts";
import { rows } from "../../src/db/database.ts";
import { FAILING_AFTER_S } from "../../src/db/webhooks/webhook-health.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

/** From the first failed attempt on, an outage is told within this time, in milliseconds. */
const PROMISED_MS = 60_000;
/** Between two events, in milliseconds. */
const PUBLISH_MS = 500;

let service: TestService;
let publishing: NodeJS.Timeout;
beforeAll(async () => {
  // No retry is due while the test lasts: every failed attempt is one that will be retried.
  service = await startTestService({ ...WOKEN, RETRY_INITIAL_DELAY: "1h" });
}, 120_000);
afterAll(async () => {
  clearInterval(publishing);
  await service?.stop();
});

test("an outage of receivers shows within a minute, while all of its deliveries wait for a retry", async () => {
  let away = false;
  const dead = await service.receiver(() => 503);
  const breaking = await service.receiver(() => (away ? 500 : 200));
  const well = await service.receiver();
  const [deadId, breakingId, wellId] = [
    await service.register(`${dead.url}/hooks`),
    await service.register(`${breaking.url}/hooks`),
    await service.register(`${well.url}/hooks`),
  ];
  const stats = createClient(StatsService, service.transport);
  const health = async (id: bigint) => (await service.webhooks.getWebhook({ webhookId: id })).webhook?.health;
  publishing = setInterval(() => void service.publish(), PUBLISH_MS);

  await expect.poll(() => health(deadId), { timeout: PROMISED_MS }).toBe(WebhookHealth.FAILING);
  expect(await health(breakingId)).toBe(WebhookHealth.HEALTHY);
  away = true;
  await expect.poll(() => health(breakingId), { timeout: PROMISED_MS }).toBe(WebhookHealth.DEGRADED);
  // As if its last success were almost as old as that of a failing webhook.
  await rows(
    service.db,
    `update webhook_health set last_success = last_success - interval '${FAILING_AFTER_S - 3} seconds'
      where webhook_id = :breakingId::bigint`,
    { breakingId },
  );
  await expect.poll(() => health(breakingId), { timeout: PROMISED_MS }).toBe(WebhookHealth.FAILING);
  expect(await health(wellId)).toBe(WebhookHealth.HEALTHY);

  const { webhook } = await service.webhooks.getWebhook({ webhookId: breakingId });
  expect(webhook?.lastError).toBe("HTTP status 500");
  const { overview } = await stats.getOverview({});
  expect(overview).toMatchObject({ failed: 0n, failingWebhooks: 2n, healthyWebhooks: 1n });
  expect(overview?.failedAttemptsLastDay).toBeGreaterThan(0n);
  const { deliveries } = await service.deliveries.listDeliveries({ states: [DeliveryState.FAILED] });
  expect(deliveries).toEqual([]);

  away = false;
  await expect.poll(() => health(breakingId), { timeout: PROMISED_MS }).not.toBe(WebhookHealth.FAILING);
});
