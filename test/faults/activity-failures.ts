import { DELIVERIES_FAILED, UNDELIVERED } from "../../workflows/dispatch-input.ts";
import { type FaultParts, temporalClient } from "./parts.ts";

/** temporal.api.enums.v1.TimeoutType: of a pump that its worker did not take in time. */
const SCHEDULE_TO_START = 2;

/**
 * Activities of all runs that failed or timed out by a fault, as `name: message`; failures by which activities tell what became of
 * deliveries are none.
 */
export async function activityFailures(parts: FaultParts): Promise<string[]> {
  const { connection, workflow } = await temporalClient(parts);
  const faults: string[] = [];
  for await (const { workflowId, runId } of workflow.list()) {
    const { events } = await workflow.getHandle(workflowId, runId).fetchHistory();
    const names = new Map<string, string>();
    for (const event of events ?? []) {
      const scheduled = event.activityTaskScheduledEventAttributes;
      if (scheduled) names.set(String(event.eventId), scheduled.activityType?.name ?? "");
      const started = event.activityTaskStartedEventAttributes;
      const failed = event.activityTaskFailedEventAttributes;
      const timedOut = event.activityTaskTimedOutEventAttributes;
      // Attempts before the last show only in the start of the next one.
      const failure = started?.lastFailure ?? failed?.failure ?? timedOut?.failure;
      const { scheduledEventId } = started ?? failed ?? timedOut ?? {};
      const type = failure?.applicationFailureInfo?.type ?? "";
      const isTold = [UNDELIVERED, DELIVERIES_FAILED].includes(type);
      if (failure && !isTold && failure.timeoutFailureInfo?.timeoutType !== SCHEDULE_TO_START)
        faults.push(`${names.get(String(scheduledEventId))}: ${failure.message}`);
    }
  }
  await connection.close();
  return faults;
}
