import { type Client, WorkflowExecutionAlreadyStartedError } from "@temporalio/client";
import type { Logger } from "pino";
import type { Db } from "../../db/database.ts";
import {
  claimIdleReplays,
  giveBackReplay,
  type IdleReplay,
  noteReplayStarted,
} from "../../db/replays/running.ts";
import type { TemporalNames } from "../connection/names.ts";

/** What starts the workflows of replays. */
interface ReplayStarter {
  client: Client;
  db: Db;
  log: Logger;
  names: TemporalNames;
  heartbeatTimeoutMs: number;
}

/**
 * Starts the workflows of replays that none works on: new and resumed ones, and those whose workflow was terminated. Called
 * again and again by every worker; a replay has at most one open workflow.
 */
export async function startReplays(starter: ReplayStarter): Promise<void> {
  const { db, log, heartbeatTimeoutMs } = starter;
  // Longer than a worker takes to notice that another one was lost.
  for (const replay of await claimIdleReplays(db, 3 * heartbeatTimeoutMs)) {
    try {
      await start(replay, starter);
    } catch (err) {
      if (!(err instanceof WorkflowExecutionAlreadyStartedError))
        log.warn({ err, replayId: replay.id }, "starting a replay failed; retrying");
      await giveBackReplay(db, replay.id);
    }
  }
}

async function start({ id, outline }: IdleReplay, starter: ReplayStarter): Promise<void> {
  const { client, db, log, names, heartbeatTimeoutMs } = starter;
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
