import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { rows } from "../../src/db/database.ts";
import { startRun } from "../support/start-run.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

vi.setConfig({ testTimeout: 120_000 });

/** As many as there are retry groups for webhooks in a run: each webhook has its own. */
const HANGING = 200;
const OTHERS = 10;
const MAX_PER_HOST = 20;
const [TO_HANGING, TO_OTHERS] = [1, 2] as const;

let service: TestService;
beforeAll(async () => {
  // Attempts that hang do so for as long as the test lasts, and runs are those that it starts.
  service = await startTestService({
    DISPATCH_INTERVAL: "24h",
    DELIVERY_TIMEOUT: "5m",
    DELIVERY_MAX_PER_HOST: String(MAX_PER_HOST),
    RETRY_INITIAL_DELAY: "2s",
    RETRY_BACKOFF_COEFFICIENT: "1",
    MAX_WEBHOOKS: "1000",
  });
});
afterAll(() => service.stop());

test("while the retries of 200 webhooks of one host hang, those of other hosts are made when they are due", async () => {
  const letGo = Promise.withResolvers<number>();
  onTestFinished(() => letGo.resolve(200));
  const hanging = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : letGo.promise));
  const other = await service.receiver(({ attempt }) => (attempt < 3 ? 503 : 200));
  for (let n = 0; n < HANGING; n += 1) await service.register(`${hanging.url}/${n}`, { process: TO_HANGING });
  for (let n = 0; n < OTHERS; n += 1) await service.register(`${other.url}/${n}`, { process: TO_OTHERS });

  await service.publish();
  const run = await startRun(service, "hanging");
  const waiting = async () => {
    const { raw } = await run.describe();
    return (raw.pendingActivities ?? []).filter(
      ({ activityType }) => activityType?.name === "retryDeliveries",
    ).length;
  };
  // Each group has its activity, and the host's window is full.
  await expect.poll(waiting, { timeout: 60_000 }).toBe(HANGING);
  await expect.poll(() => hanging.received.length).toBeGreaterThan(HANGING);

  const { eventId } = await service.publishDocument();
  const later = await startRun(service, "beside-hanging");
  // Where the pump of the first run still works, it may make some of the first attempts, which its run then retries.
  await later.result();
  const deliveries = await service.untilFinal(eventId);
  expect(deliveries.map(({ state }) => state)).toEqual(Array(OTHERS).fill(DeliveryState.DELIVERED));
  const attempts = (process: number) =>
    rows(
      service.db,
      `select a.number, count(*)::int as n
        from all_attempts a join all_deliveries d on d.id = a.delivery_id join webhooks w on w.id = d.webhook_id
        where w.process = :process::int group by 1 order by 1`,
      { process },
    );
  expect(await attempts(TO_OTHERS)).toEqual([1, 2, 3].map((number) => ({ number, n: OTHERS })));
  expect(await attempts(TO_HANGING)).toEqual([{ number: 1, n: HANGING }]);
  // Those in flight to the host are bounded, and the others wait without a request.
  expect(hanging.received).toHaveLength(HANGING + MAX_PER_HOST);
});
