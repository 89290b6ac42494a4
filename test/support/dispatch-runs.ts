import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import type { WorkflowHandle } from "@temporalio/client";
import { Worker } from "@temporalio/worker";
import { expect, onTestFinished } from "vitest";
import type { Reply } from "../../demo/receiver.ts";
import { type History, stepsOf } from "../upgrade/shapes.ts";
import { holdToShape, RECORDING } from "../upgrade/stored-histories.ts";
import { part } from "./parts.ts";
import type { TestService } from "./test-service.ts";
import { eventually } from "./wait.ts";

/** A dispatch run that a test has started. */
export type Run = Awaited<ReturnType<typeof startRun>>;

/**
 * Starts a dispatch run by itself, beside those of the schedule, so that its id is known.
 *
 * @param input over the input that the schedule gives
 * @param id the end of the workflow's id; a fresh one unless given
 */
export async function startRun(
  service: Pick<TestService, "temporal" | "scheduleId">,
  input: Record<string, unknown> = {},
  id: string = randomUUID(),
) {
  const { action } = await service.temporal.schedule.getHandle(service.scheduleId).describe();
  const { workflowType, taskQueue, args } = action as {
    workflowType: string;
    taskQueue: string;
    args: object[];
  };
  return service.temporal.workflow.start(workflowType, {
    workflowId: `${service.scheduleId}-${id}`,
    taskQueue,
    args: [{ ...args[0], ...input }],
  });
}

/** Starts a run that is terminated at the end of the test, because it waits for longer. */
export async function startLongRun(...options: Parameters<typeof startRun>): Promise<Run> {
  const run = await startRun(...options);
  onTestFinished(async () => {
    // It may have ended.
    await run.terminate().catch(() => {});
  });
  return run;
}

/** What has happened in a run, in order. */
export const stepsSoFar = async (run: WorkflowHandle) => stepsOf(await run.fetchHistory());

/** Waits until the history of the run has the step, as often as told. Temporal answers once the history has grown. */
export async function untilStep(run: WorkflowHandle, step: string, times = 1): Promise<void> {
  const { workflowService, options } = run.client;
  const execution = { workflowId: run.workflowId };
  let events: NonNullable<History["events"]> = [];
  let nextPageToken: Uint8Array = new Uint8Array();
  await eventually(async () => {
    if (nextPageToken.length === 0) events = [];
    const request = { namespace: options.namespace, execution, waitNewEvent: true, nextPageToken };
    const page = await workflowService.getWorkflowExecutionHistory(request);
    events.push(...(page.history?.events ?? []));
    nextPageToken = page.nextPageToken;
    const steps = stepsOf({ events });
    expect(steps.filter((one) => one === step).length, `${step} in ${steps}`).toBeGreaterThanOrEqual(times);
  });
}

/**
 * Replays a run as the next workflow task on another worker would, and holds its history to shapes of `test/upgrade/shapes.ts`.
 *
 * @returns what happened in it
 */
export async function replay(run: WorkflowHandle, ...shapes: string[]): Promise<string[]> {
  const history = await run.fetchHistory();
  const code = await readFile((await part("workflows")).bundle, "utf8");
  await Worker.runReplayHistory({ workflowBundle: { code } }, history);
  for (const shape of shapes) await holdToShape(shape, history);
  return stepsOf(history);
}

/** The delay of the retries for which runs wait, in seconds. Longer than a test waits for anything, unless it records a run's end. */
export const WAITING_S = RECORDING ? 10 : 600;

/** Replays a run that waits for a retry. The run ends and is held to its shape only when histories are recorded. */
export async function replayWaiting(run: WorkflowHandle, shape: string): Promise<string[]> {
  if (RECORDING) await run.result();
  return replay(run, ...(RECORDING ? [shape] : []));
}

/** Fails the first attempt, asks for a retry after some seconds, and accepts that. */
export function failingOnce(retryAfterS: number): Reply {
  return ({ attempt }, response) => {
    if (attempt > 1) return 200;
    response.writeHead(503, { "retry-after": String(retryAfterS) }).end();
    return undefined;
  };
}
