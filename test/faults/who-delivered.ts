import { Client, Connection } from "@temporalio/client";
import { rows } from "../../src/db/database.ts";
import type { FaultParts } from "./parts.ts";

/** The processes that made first attempts in each execution of a dispatch that delivered something, by its history. */
export async function whoDelivered({ db, temporal }: FaultParts): Promise<Set<string>[]> {
  const connection = await Connection.connect({ address: temporal.address });
  const client = new Client({ connection });
  const found: Set<string>[] = [];
  // Those of a dispatch that publishing wakes have a number behind the execution's id.
  const executions = await rows<{ workflow_id: string; run_id: string }>(
    db,
    "select distinct workflow_id, split_part(first_run_id, '/', 1) as run_id from runs where delivered > 0",
  );
  for (const { workflow_id, run_id } of executions) {
    const { events = [] } = await client.workflow.getHandle(workflow_id, run_id).fetchHistory();
    const pumps = new Set<string>();
    const identities = new Set<string>();
    for (const { eventId, activityTaskScheduledEventAttributes: scheduled } of events ?? [])
      if (scheduled?.activityType?.name === "deliverPending") pumps.add(String(eventId));
    for (const { activityTaskStartedEventAttributes: started } of events ?? [])
      if (started?.identity && pumps.has(String(started.scheduledEventId))) identities.add(started.identity);
    found.push(identities);
  }
  await connection.close();
  return found;
}
