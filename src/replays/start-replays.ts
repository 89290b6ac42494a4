import { type Client, WorkflowExecutionAlreadyStartedError } from "@temporalio/client";
import type { Logger } from "pino";
import type { Db } from "../lib/pg/index.ts";
import type { TemporalNames } from "../temporal/index.ts";
import { claimIdleReplays, giveBackReplay, noteReplayStarted } from "./running.ts";

/**
 * Starts the workflows of replays that none works on: new and resumed ones, and those whose workflow was terminated. Every worker
 * does so again and again; a replay has at most one open workflow.
 */
export async function startReplays(
  { client, db, log, names }: { client: Client; db: Db; log: Logger; names: TemporalNames },
  heartbeatTimeoutMs: number,
): Promise<void> {
  // Longer than a worker takes to notice that another one was lost.
  for (const { id: replayId, outline } of await claimIdleReplays(db, 3 * heartbeatTimeoutMs)) {
    const workflowId = `${names.prefix}replay-${replayId}`;
    try {
      const { firstExecutionRunId: runId } = await client.workflow.start("replayDeliveries", {
        workflowId,
        taskQueue: names.dispatchTaskQueue,
        args: [{ replayId, heartbeatTimeoutMs }],
        // An open one may be about to end, and would not take the replay up again.
        workflowIdConflictPolicy: "FAIL",
        staticSummary: outline,
      });
      await noteReplayStarted(db, replayId, { workflowId, runId });
      log.info({ replayId, workflowId, outline }, "replay started");
    } catch (err) {
      if (!(err instanceof WorkflowExecutionAlreadyStartedError))
        log.warn({ err, replayId }, "starting a replay failed; retrying");
      await giveBackReplay(db, replayId);
    }
  }
}
