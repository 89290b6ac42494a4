import { Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { StatsService } from "../../gen/webhook/v1/stats_pb.ts";
import { failure } from "../support/failure.ts";
import { startTestService, type TestService } from "../support/test-service.ts";

let service: TestService;
/** Neither a minute nor publishing dispatches within the tests. */
beforeAll(async () => {
  service = await startTestService({ DISPATCH_INTERVAL: "24h" });
});
afterAll(() => service.stop());

test("a dispatch is started at once when it is asked for, and not before", async () => {
  const stats = createClient(StatsService, service.transport);
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  const { eventId } = await service.publish();
  expect((await stats.getOverview({})).overview).toMatchObject({ pending: 1n, delivering: 0n });
  expect(receiver.received).toHaveLength(0);

  await stats.dispatchNow({});
  await receiver.until((received) => received.length === 1);
  expect((await service.untilFinal(eventId))[0]?.state).toBe(DeliveryState.DELIVERED);
  await expect
    .poll(async () => (await stats.listDispatchRuns({})).runs[0])
    .toMatchObject({ attempts: 1, delivered: 1, failed: 0 });
});

test("while the schedule is paused, nothing is dispatched, and whoever asks is told so", async () => {
  const schedule = service.temporal.schedule.getHandle(service.scheduleId);
  await schedule.pause();
  const refused = await failure(createClient(StatsService, service.transport).dispatchNow({}));
  expect(refused?.code).toBe(Code.FailedPrecondition);
  expect(refused?.rawMessage).toContain("paused in Temporal");
  expect(refused?.rawMessage).toContain(
    `temporal schedule toggle --namespace default --schedule-id ${service.scheduleId} --unpause`,
  );
  await schedule.unpause();
});
