import { Worker } from "@temporalio/worker";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import type { Receiver } from "../../demo/receiver.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import type { Service } from "../../src/service.ts";
import { FULL_SIZE } from "../faults/scale.ts";
import { startRun } from "../support/dispatch-runs.ts";
import { startTestService, type TestService } from "../support/test-service.ts";
import { ASK_FIRST, ASK_LAST, behindPatch, bundleChanged } from "./changed-workflows.ts";
import { type History, stepsOf } from "./shapes.ts";

// Workers that start and stop take long on a busy machine, and Temporal waits before it repeats a task that failed.
vi.setConfig({ testTimeout: 240_000 });
const PATIENT = { timeout: 60_000 };

/** So late that a worker is replaced, once or twice, while the run waits for the first retry. */
const RETRY_AFTER_S = { once: 3, twice: 5 };
const FAILED_TASK = "workflow task failed";

let service: TestService;
/** The workflows with a change that each run passes first, and with one that it passes last. */
let changed: Record<"first" | "last", { code: string }>;
let worker: Service | undefined;

beforeAll(async () => {
  const [first, last] = await Promise.all([
    bundleChanged(behindPatch("ask-first", ASK_FIRST)),
    bundleChanged(behindPatch("ask-last", ASK_LAST)),
  ]);
  changed = { first, last };
  service = await startTestService({ ROLE: "api", DISPATCH_INTERVAL: "24h" });
});
beforeEach(() => service.removeWebhooks());
afterAll(() => service?.stop());

/** Replaces the worker by one that has these workflows, or this build's. */
async function deploy(bundle?: { code: string }): Promise<void> {
  await worker?.stop();
  worker = await service.startWorker(bundle);
}

type Run = Awaited<ReturnType<typeof startRun>>;

const steps = async (run: Run) => stepsOf(await run.fetchHistory());

/** Starts a run that waits for a retry while the worker is replaced: the receiver accepts the third attempt. */
async function startWaitingRun(replaced: keyof typeof RETRY_AFTER_S = "once") {
  const receiver: Receiver = await service.receiver(({ attempt }, response) => {
    if (attempt > 1) return attempt < 3 ? 503 : 200;
    response.writeHead(503, { "retry-after": String(RETRY_AFTER_S[replaced]) }).end();
    return undefined;
  });
  await service.register(`${receiver.url}/`);
  const { eventId } = await service.publish();
  const run = await startRun(service);
  await expect.poll(() => steps(run), PATIENT).toContain("wait for a retry");
  expect(receiver.received).toHaveLength(1);
  return { run, eventId, receiver };
}

/** The builds of the workers that took part in a run. */
function builds({ events }: History): Set<string> {
  const ids = (events ?? []).map(
    (event) => event.workflowTaskCompletedEventAttributes?.workerVersion?.buildId,
  );
  return new Set(ids.filter((id) => typeof id === "string"));
}

/** Holds the run to what it would have done without any deployment. */
async function expectDelivered({ run, eventId, receiver }: Awaited<ReturnType<typeof startWaitingRun>>) {
  expect(await run.result()).toEqual({
    summary: "3 attempts: 1 delivered, 0 failed, 2 retried",
    sent: 3,
    delivered: 1,
    failed: 0,
    putBack: 0,
  });
  expect(await service.untilFinal(eventId)).toMatchObject([
    { state: DeliveryState.DELIVERED, attemptCount: 3 },
  ]);
  expect(receiver.received).toHaveLength(3);
}

test.each(["first", "last"] as const)(
  "an open run goes on under workflows whose patched() change comes %s, and ends as it would have",
  async (place) => {
    await deploy();
    const waiting = await startWaitingRun();
    await deploy(changed[place]);
    await expectDelivered(waiting);
    const history = await waiting.run.fetchHistory();
    expect(builds(history).size).toBe(2);
    const passed = stepsOf(history);
    expect(passed).not.toContain(FAILED_TASK);
    // A change that the run had passed is not made; one that it had not is.
    expect(passed.includes(`patch ask-${place}`)).toBe(place === "last");
    await Worker.runReplayHistory({ workflowBundle: changed[place] }, history);
  },
);

test("an open run that has not come to the change goes on when the release is rolled back", async () => {
  await deploy();
  const waiting = await startWaitingRun("twice");
  await deploy(changed.last);
  await deploy();
  await expectDelivered(waiting);
  expect(await steps(waiting.run)).not.toContain(FAILED_TASK);
});

test.runIf(FULL_SIZE)(
  "a run that has made the change waits after a roll back until the newer release is back",
  async () => {
    await deploy(changed.first);
    const waiting = await startWaitingRun();
    expect(await steps(waiting.run)).toContain("patch ask-first");
    await deploy();
    await expect.poll(() => steps(waiting.run), PATIENT).toContain(FAILED_TASK);
    const { events } = await waiting.run.fetchHistory();
    const failures = events?.flatMap(
      (event) => event.workflowTaskFailedEventAttributes?.failure?.message ?? [],
    );
    expect(failures).toContainEqual(expect.stringContaining("TMPRL1100"));
    expect(waiting.receiver.received).toHaveLength(1);
    const listed = async () => {
      const query = `TemporalChangeVersion = "ask-first" and ExecutionStatus = "Running" and WorkflowId = "${waiting.run.workflowId}"`;
      const { count } = await service.temporal.workflow.count(query);
      return count;
    };
    await expect.poll(listed).toBe(1);
    await deploy(changed.first);
    await expectDelivered(waiting);
  },
);

test.runIf(FULL_SIZE)(
  "the retries of a run that waits after a roll back are made by the next run once its lease has expired",
  async () => {
    await deploy(changed.first);
    const waiting = await startWaitingRun();
    await deploy();
    await expect.poll(() => steps(waiting.run), PATIENT).toContain(FAILED_TASK);
    // As long as it would take by itself is of no interest here.
    await service
      .db("runs")
      .where({ workflow_id: waiting.run.workflowId })
      .update({ lease_until: new Date(0) });
    await service.db("retries").update({ due: new Date() });
    const next = await startRun(service);
    expect(await next.result()).toMatchObject({ sent: 2, delivered: 1 });
    expect(await service.untilFinal(waiting.eventId)).toMatchObject([
      { state: DeliveryState.DELIVERED, attemptCount: 3 },
    ]);
    expect(waiting.receiver.received).toHaveLength(3);
    // Once the newer release is back it finds nothing left to do.
    await deploy(changed.first);
    expect(await waiting.run.result()).toMatchObject({ sent: 1, delivered: 0 });
  },
);

test.runIf(FULL_SIZE)(
  "a change without patched() leaves an open run stuck, and the workflows from before let it go on",
  async () => {
    await deploy();
    const waiting = await startWaitingRun();
    await deploy(await bundleChanged(ASK_FIRST));
    await expect.poll(() => steps(waiting.run), PATIENT).toContain(FAILED_TASK);
    await deploy();
    await expectDelivered(waiting);
  },
);
