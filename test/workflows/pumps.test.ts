import proto from "@temporalio/proto";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { addWorker } from "../../src/db/queue/workers.ts";
import { startRun } from "../support/start-run.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

const WORKERS = 5;
/** The time after which a worker that does not take its pump is skipped, in milliseconds: two offers of five seconds. */
const OFFERED_MS = 10_000;
const { TIMEOUT_TYPE_SCHEDULE_TO_START: NOT_TAKEN } = proto.temporal.api.enums.v1.TimeoutType;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ ROLE: "api", DISPATCH_INTERVAL: "24h" });
});
afterAll(() => service.stop());
afterEach(() => service.removeWebhooks());

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

test("a worker with a lease that does not take its pump is skipped, and the others make the first attempts meanwhile", async () => {
  const absent = await addWorker(service.db, {
    name: "absent",
    taskQueue: "worker-absent",
    leaseMs: 60 * OFFERED_MS,
  });
  onTestFinished(() => service.db("workers").where({ id: absent }).delete());
  const worker = await service.startWorker();
  onTestFinished(() => worker.stop());
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  const { eventId } = await service.publish();
  const run = await startRun(service, "absent-worker");
  await service.untilFinal(eventId, OFFERED_MS / 2);
  expect((await run.describe()).status.name).toBe("RUNNING");
  expect(await run.result()).toMatchObject({ sent: 1, delivered: 1 });
  const { events } = await run.fetchHistory();
  const timeouts = (events ?? []).flatMap(
    ({ activityTaskTimedOutEventAttributes: timedOut }) =>
      timedOut?.failure?.timeoutFailureInfo?.timeoutType ?? [],
  );
  expect(timeouts).toEqual([NOT_TAKEN, NOT_TAKEN]);
});
