import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

/** Clocks of one machine, read by two processes and rounded. */
const CLOCKS_MS = 5;
let service: TestService;

beforeAll(async () => {
  service = await startTestService();
});
afterAll(() => service.stop());
afterEach(() => service.removeWebhooks());

/**
 * Requests that came sooner than the limit allows: one each so many milliseconds from when it was set. However late a busy
 * machine brings a request, and however many at once, it is not early.
 *
 * @param since a moment before the limit was set, in milliseconds since 1970
 */
function early(received: { at: Date }[], since: number, rateLimit: number): number[] {
  return received
    .map(({ at }, n) => at.getTime() - since - ((n + 1) / rateLimit) * 1_000)
    .filter((lateMs) => lateMs < -CLOCKS_MS);
}

describe("a webhook's rate limit", () => {
  test("holds back first attempts to it, and nobody else's", async () => {
    const [limited, free] = [await service.receiver(), await service.receiver()];
    const webhookId = await service.register(`${limited.url}/`);
    await service.register(`${free.url}/`);
    const since = Date.now();
    // So low that all of it would take a minute, which no machine is slow enough for.
    const { webhook } = await service.webhooks.setWebhookRateLimit({ webhookId, rateLimit: 1 });
    expect(webhook?.rateLimit).toBe(1);
    await Promise.all(Array.from({ length: 60 }, (_, n) => service.publish(BigInt(n + 1))));
    await free.until((received) => received.length === 60);
    await limited.until((received) => received.length > 0);
    expect(early(limited.received, since, 1)).toEqual([]);
    expect(limited.received.length).toBeLessThan(60);
  });

  test("holds for retries too, and everything arrives in the end", async () => {
    const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : 200));
    const webhookId = await service.register(`${receiver.url}/`);
    const since = Date.now();
    await service.webhooks.setWebhookRateLimit({ webhookId, rateLimit: 40 });
    const published = await Promise.all(Array.from({ length: 40 }, (_, n) => service.publish(BigInt(n + 1))));
    await receiver.until((received) => received.length === 80);
    expect(early(receiver.received, since, 40)).toEqual([]);
    for (const { eventId } of published) {
      for (const { state } of await service.untilFinal(eventId)) expect(state).toBe(DeliveryState.DELIVERED);
    }
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
