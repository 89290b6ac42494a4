import type { WorkflowHandle } from "@temporalio/client";
import { expect } from "vitest";
import type { Reply } from "../../demo/receiver.ts";
import { stepsOf } from "../upgrade/shapes.ts";

/** Fails the first attempt, asks for a retry after some seconds, and accepts that. */
export function failingOnce(retryAfterS: number): Reply {
  return ({ attempt }, response) => {
    if (attempt > 1) return 200;
    response.writeHead(503, { "retry-after": String(retryAfterS) }).end();
    return undefined;
  };
}

/** Waits until the history of the run has the step, as often as told. */
export async function untilStep(run: WorkflowHandle, step: string, times = 1): Promise<void> {
  const found = async () => stepsOf(await run.fetchHistory()).filter((one) => one === step).length;
  await expect.poll(found, { timeout: 60_000 }).toBeGreaterThanOrEqual(times);
}
