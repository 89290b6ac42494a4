import { setTimeout as wait } from "node:timers/promises";
import { type Client, WorkflowExecutionAlreadyStartedError } from "@temporalio/client";
import type { Logger } from "pino";
import type { Db } from "../../db/database.ts";
import { isTransient } from "../../db/faults.ts";
import {
  claimIdleReplays,
  giveBackReplay,
  type IdleReplay,
  noteReplayStarted,
} from "../../db/replays/running.ts";
import type { TemporalNames } from "../connection/names.ts";

/** The interval between looks for replays without a running activity, in milliseconds. */
const LOOK_MS = 2_000;

/**
 * Starts the workflows of replays that none works on: new and resumed ones, and those whose workflow was terminated. Runs
 * in every worker until the signal aborts; a replay has at most one open workflow.
 */
export async function startReplays(
  { client, db, log, names }: { client: Client; db: Db; log: Logger; names: TemporalNames },
  heartbeatTimeoutMs: number,
  signal: AbortSignal,
): Promise<void> {
  async function start({ id, outline }: IdleReplay): Promise<void> {
    const workflowId = `${names.replayPrefix}${id}`;
    const handle = await client.workflow.start("replayDeliveries", {
      workflowId,
      taskQueue: names.dispatchTaskQueue,
      args: [{ replayId: id, heartbeatTimeoutMs }],
      // An open one may be about to end, and would not take the replay up again.
      workflowIdConflictPolicy: "FAIL",
      staticSummary: outline,
    });
    await noteReplayStarted(db, id, { workflowId, runId: handle.firstExecutionRunId });
    log.info({ replayId: id, workflowId, outline }, "replay started");
  }

  async function startFailed({ id: replayId }: IdleReplay, err: unknown): Promise<void> {
    if (signal.aborted) return;
    if (!(err instanceof WorkflowExecutionAlreadyStartedError)) {
      log.warn({ err, replayId }, "starting a replay failed; retrying");
    }
    await giveBackReplay(db, replayId);
  }

  while (!signal.aborted) {
    try {
      // Longer than a worker takes to notice that another one was lost.
      const idle = await claimIdleReplays(db, 3 * heartbeatTimeoutMs);
      for (const replay of idle) await start(replay).catch((err) => startFailed(replay, err));
    } catch (err) {
      if (!signal.aborted && !isTransient(err)) log.warn({ err }, "looking for replays failed; retrying");
    }
    await wait(LOOK_MS, undefined, { signal, ref: false }).catch(() => {});
  }
}
