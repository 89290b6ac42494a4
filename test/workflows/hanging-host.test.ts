import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
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
    RETRY_INITIAL_DELAY: "4s",
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
  expect(await later.result()).toMatchObject({ sent: 3 * OTHERS, delivered: OTHERS });
  expect(await service.untilFinal(eventId)).toHaveLength(OTHERS);
  const retried = await rows(
    service.db,
    `select from all_attempts a join all_deliveries d on d.id = a.delivery_id join webhooks w on w.id = d.webhook_id
      where w.process = :process::int and a.number > 1`,
    { process: TO_HANGING },
  );
  expect(retried).toEqual([]);
  // Those in flight to the host are bounded, and the others wait without a request.
  expect(hanging.received).toHaveLength(HANGING + MAX_PER_HOST);
});
