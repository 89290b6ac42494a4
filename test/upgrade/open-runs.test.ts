import { Worker } from "@temporalio/worker";
import { afterEach, beforeAll, expect, test } from "vitest";
import type { Service } from "../../src/app/service.ts";
import { FULL_SIZE } from "../faults/scale.ts";
import { startRun, stepsSoFar, untilStep } from "../support/dispatch-runs.ts";
import { BY_HAND, fileService } from "../support/test-service.ts";
import { ASK_FIRST, ASK_LAST, behindPatch, bundleChanged } from "./changed-workflows.ts";
import { stepsOf } from "./shapes.ts";

const FAILED_TASK = "workflow task failed";

/** The workflows with a change that each run passes first, and with one that it passes last. */
let changed: Record<"first" | "last", { code: string }>;
let worker: Service | undefined;
const service = fileService({ ...BY_HAND, ROLE: "api" });
beforeAll(async () => {
  const [first, last] = await Promise.all([
    bundleChanged(behindPatch("ask-first", ASK_FIRST)),
    bundleChanged(behindPatch("ask-last", ASK_LAST)),
  ]);
  changed = { first, last };
});
afterEach(() => service.removeWebhooks());

/** Replaces the worker by one that has these workflows, or this build's. */
async function deploy(bundle?: { code: string }): Promise<void> {
  await worker?.stop();
  worker = await service.startWorker(bundle);
}

/**
 * Starts a run that waits for a retry so long that its worker can be replaced: the receiver accepts the third attempt. The wait begins
 * with the response, so it is many times what a run needs to record it: a run that finds the retry due has no timer.
 */
async function startWaitingRun(retryAfterS = 5) {
  const receiver = await service.endpoint(({ attempt }, response) => {
    if (attempt > 1) return attempt < 3 ? 503 : 200;
    response.writeHead(503, { "retry-after": String(retryAfterS) }).end();
    return undefined;
  });
  const { eventId } = await service.publish();
  const run = await startRun(service);
  await untilStep(run, "wait for a retry");
  return { run, eventId, receiver };
}

async function expectDelivered({ eventId, receiver }: Awaited<ReturnType<typeof startWaitingRun>>) {
  await service.untilDelivered(eventId, 3);
  expect(receiver.received).toHaveLength(3);
}

/** Holds the run to what it would have done without any deployment. */
async function expectUnaffected(waiting: Awaited<ReturnType<typeof startWaitingRun>>) {
  expect(await waiting.run.result()).toMatchObject({ sent: 3, delivered: 1, failed: 0, putBack: 0 });
  await expectDelivered(waiting);
}

test.each(["first", "last"] as const)(
  "an open run goes on under workflows whose patched() change comes %s, and ends as it would have",
  async (place) => {
    await deploy();
    const waiting = await startWaitingRun();
    await deploy(changed[place]);
    await expectUnaffected(waiting);
    const history = await waiting.run.fetchHistory();
    const builds = (history.events ?? []).flatMap(
      (event) => event.workflowTaskCompletedEventAttributes?.workerVersion?.buildId ?? [],
    );
    expect(new Set(builds).size).toBe(2);
    const passed = stepsOf(history);
    expect(passed).not.toContain(FAILED_TASK);
    // A change that the run had passed is not made; one that it had not is.
    expect(passed.includes(`patch ask-${place}`)).toBe(place === "last");
    await Worker.runReplayHistory({ workflowBundle: changed[place] }, history);
  },
);

test("an open run that has not reached the change continues when the release is rolled back", async () => {
  await deploy();
  const waiting = await startWaitingRun();
  await deploy(changed.last);
  await deploy();
  await expectUnaffected(waiting);
  expect(await stepsSoFar(waiting.run)).not.toContain(FAILED_TASK);
});

test.runIf(FULL_SIZE)(
  "a run that has made the change waits after a roll back, the next run makes its retries once its lease has expired, and the newer release ends it",
  async () => {
    await deploy(changed.first);
    const waiting = await startWaitingRun();
    const { run, receiver } = waiting;
    expect(await stepsSoFar(run)).toContain("patch ask-first");
    await deploy();
    await untilStep(run, FAILED_TASK);
    const { events } = await run.fetchHistory();
    const failures = events?.flatMap(
      (event) => event.workflowTaskFailedEventAttributes?.failure?.message ?? [],
    );
    expect(failures).toContainEqual(expect.stringContaining("TMPRL1100"));
    expect(receiver.received).toHaveLength(1);
    const query = `TemporalChangeVersion = "ask-first" and ExecutionStatus = "Running" and WorkflowId = "${run.workflowId}"`;
    await expect.poll(async () => (await service.temporal.workflow.count(query)).count).toBe(1);
    // As if the time had passed.
    const runs = service.db("runs").where({ workflow_id: run.workflowId });
    await runs.update({ lease_until: new Date(0) });
    await service.db("retries").update({ due: new Date() });
    expect(await service.dispatch()).toMatchObject({ sent: 2, delivered: 1 });
    await expectDelivered(waiting);
    // Once the newer release is back it finds nothing left to do.
    await deploy(changed.first);
    expect(await run.result()).toMatchObject({ sent: 1, delivered: 0 });
  },
);
