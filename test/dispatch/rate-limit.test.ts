import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

const LIMIT = 20;
/** What the bucket held, what came in during the second, and half a second's that a busy machine brings late. */
const MOST_IN_A_SECOND = 2.5 * LIMIT;
let service: TestService;

beforeAll(async () => {
  service = await startTestService();
}, 60_000);
afterAll(() => service.stop());

/** The most requests that came within any second. */
function busiestSecond(received: { at: Date }[]): number {
  const times = received.map(({ at }) => at.getTime()).sort((a, b) => a - b);
  return Math.max(
    ...times.map((start) => times.filter((time) => time >= start && time < start + 1_000).length),
  );
}

describe("a webhook's rate limit", () => {
  test("holds back first attempts to it, and nobody else's", async () => {
    const [limited, free] = [await service.receiver(), await service.receiver()];
    const webhookId = await service.register(`${limited.url}/`);
    await service.register(`${free.url}/`);
    const { webhook } = await service.webhooks.setWebhookRateLimit({ webhookId, rateLimit: LIMIT });
    expect(webhook?.rateLimit).toBe(LIMIT);
    const published = await Promise.all(Array.from({ length: 60 }, (_, n) => service.publish(BigInt(n + 1))));
    await free.until((received) => received.length === 60);
    const freeAfter = limited.received.length;
    await limited.until((received) => received.length === 60);
    expect(freeAfter).toBeLessThan(60);
    expect(busiestSecond(limited.received)).toBeLessThanOrEqual(MOST_IN_A_SECOND);
    const spread = Number(limited.received.at(-1)?.at) - Number(limited.received[0]?.at);
    expect(spread).toBeGreaterThan(1_500);
    for (const { eventId } of published) {
      for (const { state } of await service.untilFinal(eventId)) expect(state).toBe(DeliveryState.DELIVERED);
    }
    await service.webhooks.deleteWebhook({ webhookId });
  });

  test("holds for retries too", async () => {
    const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : 200));
    const webhookId = await service.register(`${receiver.url}/`);
    await service.webhooks.setWebhookRateLimit({ webhookId, rateLimit: LIMIT });
    await Promise.all(Array.from({ length: 40 }, (_, n) => service.publish(BigInt(n + 1))));
    await receiver.until((received) => received.length === 80);
    expect(busiestSecond(receiver.received)).toBeLessThanOrEqual(MOST_IN_A_SECOND);
    await service.webhooks.deleteWebhook({ webhookId });
  });

  test("is lifted by leaving it unset, and refused where it makes no sense", async () => {
    const receiver = await service.receiver();
    const webhookId = await service.register(`${receiver.url}/`);
    await service.webhooks.setWebhookRateLimit({ webhookId, rateLimit: 5 });
    const { webhook } = await service.webhooks.setWebhookRateLimit({ webhookId });
    expect(webhook?.rateLimit).toBeUndefined();
    for (const rateLimit of [0, -1, 10_001]) {
      await expect(service.webhooks.setWebhookRateLimit({ webhookId, rateLimit })).rejects.toThrow(
        /rate_limit must be 1 to 10000/,
      );
    }
    await expect(service.webhooks.setWebhookRateLimit({ webhookId: 999_999n, rateLimit: 5 })).rejects.toThrow(
      /no webhook 999999/,
    );
  });
});
