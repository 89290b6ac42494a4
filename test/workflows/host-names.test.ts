import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Reply, startReceiver } from "../../demo/receiver.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { startRun } from "../support/start-run.ts";
import { startTestService, type TestService, trustedAuthority } from "../support/test-service.ts";

let service: TestService;
beforeAll(async () => {
  // Runs are those that the tests start.
  service = await startTestService({ DISPATCH_INTERVAL: "24h" });
});
afterAll(() => service.stop());
afterEach(() => service.removeWebhooks());

/** Fails once, and succeeds from then on. */
const recovering: Reply = ({ attempt }) => (attempt === 1 ? 503 : 200);

test("a run in which 90 hosts with names of 25 characters fail makes every retry, and is found by its hosts", async () => {
  const hosts = Array.from({ length: 90 }, (_, n) => `orders-shop-${String(n).padStart(3, "0")}.localhost`);
  for (const host of hosts) expect(host).toHaveLength(25);
  const { port, close } = await startReceiver(await (await trustedAuthority()).issue(hosts), recovering);
  onTestFinished(close);
  await Promise.all(hosts.map((host) => service.register(`https://${host}:${port}/`)));
  const { eventId } = await service.publish();
  const run = await startRun(service, "long-names");
  expect(await run.result()).toMatchObject({ sent: 180, delivered: 90, failed: 0 });
  const deliveries = await service.untilFinal(eventId);
  expect(deliveries).toHaveLength(90);
  for (const { state, attemptCount } of deliveries)
    expect([state, attemptCount]).toEqual([DeliveryState.DELIVERED, 2]);

  const named = (await run.describe()).searchAttributes.FailingHosts as string[];
  expect(named.length).toBeGreaterThan(50);
  expect(Buffer.byteLength(JSON.stringify(named))).toBeLessThan(2_048);
});

test("a host name that is longer than Temporal's summaries may be holds up no other webhook's retries", async () => {
  const receiver = await service.receiver(recovering);
  const long = `${"a".repeat(60)}.`.repeat(30);
  const longId = await service.register(`https://${long}example/`);
  await service.register(`${receiver.url}/`);
  const { eventId } = await service.publish();
  const run = await startRun(service, "too-long-a-name");
  expect(await run.result()).toMatchObject({ sent: 6, delivered: 1, failed: 1 });
  const deliveries = await service.untilFinal(eventId);
  const ends = deliveries.map(({ webhookId, state, attemptCount }) => [
    webhookId === longId,
    state,
    attemptCount,
  ]);
  expect(ends.sort()).toEqual([
    [false, DeliveryState.DELIVERED, 2],
    [true, DeliveryState.FAILED, 4],
  ]);
});
