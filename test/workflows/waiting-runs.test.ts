import { workflowMetadataQuery } from "@temporalio/workflow";
import { afterEach, describe, expect, onTestFinished, test } from "vitest";
import { addWorker } from "../../src/queue/workers.ts";
import {
  failingOnce,
  replay,
  replayWaiting,
  startLongRun,
  startRun,
  stepsSoFar,
  untilStep,
  WAITING_S,
} from "../support/dispatch-runs.ts";
import { BY_HAND, fileService } from "../support/test-service.ts";

/** As many activities of a group as a run starts before it lists the group again. */
const ACTIVITIES_PER_ASK = 5;

const service = fileService(BY_HAND);
afterEach(() => service.removeWebhooks());

describe("while a run waits for the retries of one webhook, another webhook", () => {
  /** Starts a run that waits for the retries of one webhook, while its pump waits for the response of another. */
  async function startWaitingRun() {
    const answer = Promise.withResolvers<number>();
    onTestFinished(() => answer.resolve(503));
    const early = await service.endpoint(failingOnce(WAITING_S));
    const late = await service.endpoint(({ attempt }) => (attempt === 1 ? answer.promise : 200));
    await service.publish();
    const run = await startLongRun(service, { pumpMs: 60_000 });
    await expect.poll(() => late.received.length).toBe(1);
    await untilStep(run, "wait for a retry");
    return {
      run,
      /** Lets the other webhook fail, and holds the run to the retry of that webhook alone. */
      async failLate() {
        answer.resolve(503);
        await late.until((received) => received.length === 2);
        expect(early.received).toHaveLength(1);
      },
    };
  }

  test("that first fails with the pump's last response is retried", async () => {
    const { run, failLate } = await startWaitingRun();
    await failLate();
    expect(await replayWaiting(run, "asked-after-pumps")).toContain("patch ask-after-pumps");
  });

  test("that first fails after the pump was lost is retried", async () => {
    const { run, failLate } = await startWaitingRun();
    const { raw } = await run.describe();
    const pump = raw.pendingActivities?.find(({ activityType }) => activityType?.name === "deliverPending");
    // For the run, the pump has ended. Its worker learns this with a later heartbeat.
    const { workflowId, firstExecutionRunId: runId } = run;
    await service.temporal.activity.fail(
      { workflowId, runId, activityId: pump?.activityId as string },
      "lost",
    );
    await untilStep(run, "failed deliverPending");
    // The run has listed failed deliveries once more, and waits until it does so again.
    const afterPump = async () => (await stepsSoFar(run)).join().split("failed deliverPending")[1];
    await expect.poll(afterPump).toMatch(/scheduled listUndelivered,timer/);
    await failLate();
    expect(await replayWaiting(run, "late-failure")).toContain("patch ask-after-pumps");
  });

  test("that joins the waiting group is retried when its own retry is due", async () => {
    const { run, failLate } = await startWaitingRun();
    // As in a run with more failing webhooks than groups.
    await service.db.raw(
      `insert into run_groups (run_id, webhook_id, group_number)
        select g.run_id, w.id, g.group_number from run_groups g cross join webhooks w
        where w.deleted is null and w.id <> g.webhook_id and g.run_id = (select max(run_id) from run_groups)`,
    );
    await failLate();
    expect(await replayWaiting(run, "woken-earlier")).toContain("patch wake-earlier");
  });

  test("whose retries have used all activities gets more", async () => {
    const webhook = () => service.db("webhooks").where({ id: limited.webhookId });
    const early = await service.endpoint(failingOnce(WAITING_S));
    const limited = await service.endpoint(async ({ attempt }) => {
      if (attempt > 1) return 200;
      // Each pass ends after its time without a token.
      await webhook().update({ rate_limit: 1, rate_tokens: -3_600, rate_at: new Date() });
      return 503;
    });
    await service.publish();
    const run = await startLongRun(service);
    await untilStep(run, "failed retryDeliveries", ACTIVITIES_PER_ASK);
    await webhook().update({ rate_limit: null });
    await limited.until((received) => received.length === 2);
    expect(early.received).toHaveLength(1);
    expect(await replayWaiting(run, "used-activities")).toContain("patch ask-after-activities");
  });
});

test("a run waits until a receiver wants requests again, and what waits uses up no attempts", async () => {
  let requests = 0;
  const receiver = await service.endpoint((_request, response) => {
    requests += 1;
    if (requests > 1) return 200;
    response.writeHead(429, { "retry-after": "1" }).end();
    return undefined;
  });
  await Promise.all(Array.from({ length: 10 }, (_, n) => service.publish(BigInt(n + 1))));
  const run = await startRun(service);
  expect(await run.result()).toMatchObject({ sent: 11, delivered: 10, failed: 0 });
  expect(receiver.received.map(({ attempt }) => attempt).toSorted()).toEqual([...Array(10).fill(1), 2]);
});

test("a run lists the webhooks that their circuit breakers hold back", async () => {
  const webhookId = await service.register("https://shop.example/");
  await service.webhooks.updateWebhook({ webhookId, circuitBreaker: { enabled: true } });
  const later = new Date("2100-01-01T00:00:00Z");
  const open = { state: "open" as const, outage_since: new Date(), next_probe: later, due: later };
  await service.db("webhook_breakers").where({ webhook_id: webhookId }).update(open);
  await service.db("webhooks").where({ id: webhookId }).update({ paused: new Date() });
  await service.publish();
  const run = await startRun(service);
  expect(await run.result()).toMatchObject({ sent: 0 });
  const { currentDetails } = await run.query(workflowMetadataQuery);
  expect(currentDetails).toContain("**Circuit breakers**, as last listed:\n\n");
  expect(currentDetails).toMatch(
    new RegExp(
      `- webhook ${webhookId}, shop.example: open since .* UTC \\(.*\\), next probe 2100-01-01 00:00:00 UTC`,
    ),
  );
});

test("a run has one pump on each worker, and skips one that has a lease and does not take its pump", async () => {
  const absent = await addWorker(service.db, {
    name: "absent",
    taskQueue: "worker-absent",
    leaseMs: 3_600_000,
  });
  onTestFinished(() => service.db("workers").where({ id: absent }).delete());
  const worker = await service.startWorker();
  onTestFinished(() => worker.stop());
  const receiver = await service.endpoint();
  await Promise.all(Array.from({ length: 50 }, (_, n) => service.publish(BigInt(n + 1))));
  const run = await startRun(service);
  expect(await run.result()).toMatchObject({ sent: 50, delivered: 50 });
  expect(receiver.received).toHaveLength(50);
  const { events: history } = await run.fetchHistory();
  const steps = (history ?? []).flatMap((event) => {
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (event.activityTaskTimedOutEventAttributes) return ["lost"];
    return scheduled?.activityType?.name === "deliverPending" ? [scheduled.taskQueue?.name] : [];
  });
  // The others make the first attempts before the absent one is given up, which is tried again once.
  expect(new Set(steps.slice(0, steps.indexOf("lost"))).size).toBe(3);
  expect(steps.filter((step) => step === "worker-absent")).toHaveLength(2);
  await replay(run, "worker-that-was-skipped");
});
