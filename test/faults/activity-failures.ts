import type { Client } from "@temporalio/client";
import { DELIVERIES_FAILED, UNDELIVERED } from "../../workflows/dispatch-input.ts";
import { type FaultParts, temporalClient } from "./parts.ts";

type History = Awaited<ReturnType<ReturnType<Client["workflow"]["getHandle"]>["fetchHistory"]>>;
type Failure = NonNullable<
  NonNullable<NonNullable<History["events"]>[number]["activityTaskFailedEventAttributes"]>["failure"]
>;

/** Activities of all runs that failed or timed out by a fault, as `name: message`. */
export async function activityFailures(parts: FaultParts): Promise<string[]> {
  const { connection, workflow } = await temporalClient(parts);
  const faults: string[] = [];
  for await (const { workflowId, runId } of workflow.list()) {
    faults.push(...faultsIn(await workflow.getHandle(workflowId, runId).fetchHistory()));
  }
  await connection.close();
  return faults;
}

/** The same of one run. */
export function faultsIn({ events }: History): string[] {
  const names = new Map<string, string>();
  const faults: string[] = [];
  for (const event of events ?? []) {
    const scheduled = event.activityTaskScheduledEventAttributes;
    if (scheduled) names.set(String(event.eventId), scheduled.activityType?.name ?? "");
    const started = event.activityTaskStartedEventAttributes;
    const failed = event.activityTaskFailedEventAttributes;
    const timedOut = event.activityTaskTimedOutEventAttributes;
    // Attempts before the last show only in the start of the next one.
    const failure = started?.lastFailure ?? failed?.failure ?? timedOut?.failure;
    const { scheduledEventId } = started ?? failed ?? timedOut ?? {};
    if (failure && isFault(failure))
      faults.push(`${names.get(String(scheduledEventId))}: ${failure.message}`);
  }
  return faults;
}

/** Not those by which activities tell what became of deliveries, and not that of a pump that its worker did not take in time. */
function isFault({ applicationFailureInfo, timeoutFailureInfo }: Failure): boolean {
  const { type } = applicationFailureInfo ?? {};
  return (
    type !== UNDELIVERED &&
    type !== DELIVERIES_FAILED &&
    timeoutFailureInfo?.timeoutType !== SCHEDULE_TO_START
  );
}

/** temporal.api.enums.v1.TimeoutType. */
const SCHEDULE_TO_START = 2;
