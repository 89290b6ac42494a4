import { expect, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { rows } from "../../src/db/database.ts";
import { startRun } from "../support/dispatch-runs.ts";
import { BY_HAND, fileService } from "../support/test-service.ts";

/** As many as there are retry groups for webhooks in a run: each webhook has its own. */
const HANGING = 200;
const OTHERS = 10;
const MAX_PER_HOST = 20;
const [TO_HANGING, TO_OTHERS] = [1, 2] as const;

const service = fileService({
  ...BY_HAND,
  // Attempts that hang do so for as long as the test lasts.
  DELIVERY_TIMEOUT: "5m",
  DELIVERY_MAX_PER_HOST: String(MAX_PER_HOST),
  MAX_WEBHOOKS: "1000",
});

test("while the retries of 200 webhooks of one host hang, those of other hosts are made when they are due", async () => {
  const letGo = Promise.withResolvers<number>();
  onTestFinished(() => letGo.resolve(200));
  const hanging = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : letGo.promise));
  const other = await service.receiver(({ attempt }) => (attempt < 3 ? 503 : 200));
  const register = (url: string, process: number, count: number) =>
    Promise.all(Array.from({ length: count }, (_, n) => service.register(`${url}/${n}`, { process })));
  await register(hanging.url, TO_HANGING, HANGING);
  await register(other.url, TO_OTHERS, OTHERS);

  await service.publish();
  const run = await startRun(service);
  const waiting = async () => {
    const { raw } = await run.describe();
    const activities = raw.pendingActivities ?? [];
    return activities.filter(({ activityType }) => activityType?.name === "retryDeliveries").length;
  };
  // Each group has its activity, and the host's window is full.
  await expect.poll(waiting, { interval: 500 }).toBe(HANGING);
  await expect.poll(() => hanging.received.length).toBe(HANGING + MAX_PER_HOST);

  const { eventId } = await service.publishDocument();
  // Where the pump of the first run still works, it may make some of the first attempts, which its run then retries.
  await service.dispatch();
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
