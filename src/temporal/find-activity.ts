import type { Client } from "@temporalio/client";
import type proto from "@temporalio/proto";

/** A run of the dispatch, by the run id of its first execution. */
export interface DispatchRunKey {
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

type Event = proto.temporal.api.history.v1.IHistoryEvent;

/**
 * The activity of a run that sends a delivery: the latest one of its retry group, or the pump of its first attempt.
 *
 * @param group the retry group; null for a delivery without retries
 * @returns undefined if several pumps could have sent it, or if the history is no longer stored
 */
export async function findActivity(
  client: Client,
  { workflowId, runId: firstRunId }: DispatchRunKey,
  group: number | null,
): Promise<FoundActivity | undefined> {
  const pumps: FoundActivity[] = [];
  let retries: FoundActivity | undefined;
  let runId: string | undefined = firstRunId;
  for (let execution = 0; runId && execution < MAX_EXECUTIONS; execution += 1) {
    let next: string | undefined;
    for await (const event of eventsOf(client, workflowId, runId)) {
      const activity = { runId, eventId: String(event.eventId) };
      if (scheduledType(event) === "deliverPending") pumps.push(activity);
      if (group !== null && groupOf(event) === group) retries = activity;
      next = event.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId ?? next;
    }
    runId = next;
  }
  return retries ?? (pumps.length === 1 ? pumps[0] : undefined);
}

async function* eventsOf(client: Client, workflowId: string, runId: string): AsyncIterable<Event> {
  let nextPageToken: Uint8Array | undefined;
  do {
    const page = await client.workflowService.getWorkflowExecutionHistory({
      namespace: client.options.namespace,
      execution: { workflowId, runId },
      ...(nextPageToken ? { nextPageToken } : {}),
    });
    yield* page.history?.events ?? [];
    nextPageToken = page.nextPageToken ?? undefined;
  } while (nextPageToken && nextPageToken.length > 0);
}

function scheduledType({ activityTaskScheduledEventAttributes: scheduled }: Event): string | undefined {
  return scheduled?.activityType?.name ?? undefined;
}

/** The retry group of an activity; undefined for other events. */
function groupOf(event: Event): number | undefined {
  if (scheduledType(event) !== "retryDeliveries") return undefined;
  const data = event.activityTaskScheduledEventAttributes?.input?.payloads?.[0]?.data ?? "{}";
  return (JSON.parse(Buffer.from(data).toString()) as { group?: number }).group;
}
