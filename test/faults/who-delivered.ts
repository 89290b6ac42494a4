import { rows } from "../../src/db/database.ts";
import { type FaultParts, temporalClient } from "./parts.ts";

/** The processes whose pumps made first attempts that were delivered, by the histories of the runs. */
export async function whoDelivered(parts: FaultParts): Promise<Set<string>> {
  const { connection, workflow } = await temporalClient(parts);
  const identities = new Set<string>();
  const runs = await rows<{ workflow_id: string; first_run_id: string }>(
    parts.db,
    "select workflow_id, first_run_id from runs where delivered > 0",
  );
  for (const { workflow_id, first_run_id } of runs) {
    const { events } = await workflow.getHandle(workflow_id, first_run_id).fetchHistory();
    const pumps = new Set<string>();
    for (const { eventId, activityTaskScheduledEventAttributes: scheduled } of events ?? [])
      if (scheduled?.activityType?.name === "deliverPending") pumps.add(String(eventId));
    for (const { activityTaskCompletedEventAttributes: completed } of events ?? []) {
      if (!completed || !pumps.has(String(completed.scheduledEventId))) continue;
      const [payload] = completed.result?.payloads ?? [];
      const { delivered } = JSON.parse(Buffer.from(payload?.data ?? "").toString());
      if (delivered > 0) identities.add(completed.identity as string);
    }
  }
  await connection.close();
  return identities;
}
