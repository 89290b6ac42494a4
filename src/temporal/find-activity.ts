import type { Client } from "@temporalio/client";

/** A run of the dispatch, by the run id of its first execution. */
export interface DispatchRun {
  workflowId: string;
  runId: string;
}

/** An activity in a history, as the Temporal UI addresses it. */
export interface FoundActivity {
  /** The run id of its execution. */
  runId: string;
  eventId: string;
}

/** The maximum number of executions of a run that are searched: a run continues as new after some thousand events. */
const MAX_EXECUTIONS = 20;

/**
 * The activity of a run that sends a delivery: the latest one of its retry group, or the pump of its first attempt.
 *
 * @param group the retry group; null for a delivery without retries
 * @returns undefined if several pumps could have sent it, or if the history is no longer stored
 */
export async function findActivity(
  client: Client,
  run: DispatchRun,
  group: number | null,
): Promise<FoundActivity | undefined> {
  const pumps: FoundActivity[] = [];
  let retries: FoundActivity | undefined;
  let next: string | undefined = run.runId;
  for (let execution = 0; next && execution < MAX_EXECUTIONS; execution += 1) {
    const runId: string = next;
    next = undefined;
    const { events } = await client.workflow.getHandle(run.workflowId, runId).fetchHistory();
    for (const event of events ?? []) {
      const { activityTaskScheduledEventAttributes: scheduled } = event;
      const type = scheduled?.activityType?.name;
      const activity = { runId, eventId: String(event.eventId) };
      if (type === "deliverPending") pumps.push(activity);
      if (type === "retryDeliveries") {
        const input = Buffer.from(scheduled?.input?.payloads?.[0]?.data ?? "{}").toString();
        if ((JSON.parse(input) as { group?: number }).group === group) retries = activity;
      }
      next = event.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId ?? next;
    }
  }
  return retries ?? (pumps.length === 1 ? pumps[0] : undefined);
}
