import { readFile } from "node:fs/promises";
import { Worker } from "@temporalio/worker";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import type { Receiver } from "../../demo/receiver.ts";
import { part } from "../support/parts.ts";
import { startRun } from "../support/start-run.ts";
import { startTestService, type TestService } from "../support/test-service.ts";
import { failingOnce, untilStep } from "../support/waiting-run.ts";
import { stepsOf } from "../upgrade/shapes.ts";

type Run = Awaited<ReturnType<typeof startRun>>;

/** The delay of the retries for which runs wait. Longer than a test waits for anything. */
const WAITING_S = 120;
/** As many activities of a group as a run starts before it lists the group again. */
const ACTIVITIES_PER_ASK = 5;

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ DISPATCH_INTERVAL: "24h" });
});
afterAll(() => service.stop());
afterEach(() => service.removeWebhooks());

/** A receiver that fails the first attempt when it is told to, and accepts the second. */
async function failingLater(): Promise<Receiver & { fail(): void }> {
  const answer = Promise.withResolvers<number>();
  onTestFinished(() => answer.resolve(503));
  const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? answer.promise : 200));
  return Object.assign(receiver, { fail: () => answer.resolve(503) });
}

/** Starts a run that waits for the retries of one webhook, while its pump waits for the response of another. */
async function startWaitingRun(
  id: string,
): Promise<{ run: Run; early: Receiver; late: Receiver & { fail(): void } }> {
  const early = await service.receiver(failingOnce(WAITING_S));
  const late = await failingLater();
  await service.register(`${early.url}/`);
  await service.register(`${late.url}/`);
  await service.publish();
  const run = await startRun(service, id, { pumpMs: 60_000 });
  onTestFinished(async () => {
    await run.terminate();
  });
  await expect.poll(() => late.received.length).toBe(1);
  await untilStep(run, "wait for a retry");
  return { run, early, late };
}

/** Replays the run as the next workflow task on another worker does. */
async function expectReplayable(run: Run, patch: string): Promise<void> {
  const history = await run.fetchHistory();
  expect(stepsOf(history)).toContain(`patch ${patch}`);
  const code = await readFile((await part("workflows")).bundle, "utf8");
  await Worker.runReplayHistory({ workflowBundle: { code } }, history);
}

test("a webhook that first fails with the pump's last response is retried while the run waits for another webhook's retries", async () => {
  const { run, early, late } = await startWaitingRun("last-response");
  late.fail();
  await late.until((received) => received.length === 2);
  expect(early.received).toHaveLength(1);
  await expectReplayable(run, "ask-after-pumps");
});

test("a webhook that first fails after the pump was lost is retried while the run waits for another webhook's retries", async () => {
  const { run, early, late } = await startWaitingRun("lost-pump");
  const { raw } = await run.describe();
  const pump = raw.pendingActivities?.find(({ activityType }) => activityType?.name === "deliverPending");
  // For the run, the pump has ended. Its worker learns this with a later heartbeat.
  const { workflowId, firstExecutionRunId: runId } = run;
  await service.temporal.activity.fail({ workflowId, runId, activityId: pump?.activityId as string }, "lost");
  await untilStep(run, "failed deliverPending");
  late.fail();
  await late.until((received) => received.length === 2);
  expect(early.received).toHaveLength(1);
  await expectReplayable(run, "ask-after-pumps");
});

test("a webhook that joins a waiting group is retried when its own retry is due", async () => {
  const { run, early, late } = await startWaitingRun("joined-group");
  // As in a run with more failing webhooks than groups.
  await service.db.raw(
    `insert into run_groups (run_id, webhook_id, group_number)
      select g.run_id, w.id, g.group_number from run_groups g cross join webhooks w
      where w.deleted is null and w.id <> g.webhook_id and g.run_id = (select max(run_id) from run_groups)`,
  );
  late.fail();
  await late.until((received) => received.length === 2);
  expect(early.received).toHaveLength(1);
  await expectReplayable(run, "wake-earlier");
});

test("a webhook whose retries have used all activities gets more while the run waits for another webhook's retries", async () => {
  const early = await service.receiver(failingOnce(WAITING_S));
  // Late enough that the rate limit is reached before the retry is due.
  const limited = await service.receiver(failingOnce(3));
  await service.register(`${early.url}/`);
  const id = await service.register(`${limited.url}/`);
  await service.publish();
  const run = await startRun(service, "used-activities");
  onTestFinished(async () => {
    await run.terminate();
  });
  await limited.until((received) => received.length === 1);
  const webhook = () => service.db("webhooks").where({ id });
  // Each pass ends after its time without a token.
  await webhook().update({ rate_limit: 1, rate_tokens: -3_600, rate_at: new Date() });
  await untilStep(run, "failed retryDeliveries", ACTIVITIES_PER_ASK);
  await webhook().update({ rate_limit: null });
  await expect.poll(() => limited.received.length).toBe(2);
  expect(early.received).toHaveLength(1);
  await expectReplayable(run, "ask-after-activities");
});
