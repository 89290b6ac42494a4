import { afterAll, beforeAll, expect, test } from "vitest";
import { startRun } from "../support/start-run.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

const WORKERS = 5;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ ROLE: "api", DISPATCH_INTERVAL: "24h" });
});
afterAll(() => service.stop());

test("a run has one pump on each of five workers, and makes the first attempts once", async () => {
  for (let n = 0; n < WORKERS; n += 1) await service.startWorker();
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  await Promise.all(Array.from({ length: 50 }, (_, n) => service.publish(BigInt(n + 1))));
  const run = await startRun(service, "five-workers");
  expect(await run.result()).toMatchObject({ sent: 50, delivered: 50 });
  expect(receiver.received).toHaveLength(50);
  const { events } = await run.fetchHistory();
  const queues = (events ?? []).flatMap(({ activityTaskScheduledEventAttributes: scheduled }) =>
    scheduled?.activityType?.name === "deliverPending" ? [scheduled.taskQueue?.name] : [],
  );
  expect(queues).toHaveLength(WORKERS);
  expect(new Set(queues).size).toBe(WORKERS);
});
