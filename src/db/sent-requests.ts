import type { DeliveryFacts } from "../delivery-headers.ts";
import type { Db } from "./database.ts";
import { rows } from "./database.ts";

/** What a delivery sends, and the run that claimed it last. */
export interface SentRequest {
  facts: DeliveryFacts;
  /** The JSON body. */
  payload: string;
  /** Null when no run has it, or the run is forgotten. */
  run: { workflowId: string; runId: string } | null;
}

/** What the delivery of this id, which must be a UUID, sends; null when there is none. */
export async function getSentRequest(db: Db, id: string): Promise<SentRequest | null> {
  const [row] = await rows<{
    process: number;
    installedAppId: string | null;
    userId: string;
    test: boolean;
    payload: string;
    workflowId: string | null;
    firstRunId: string | null;
  }>(
    db,
    `select w.process, w.installed_app_id as "installedAppId", e.user_id as "userId", e.test, e.payload,
        r.workflow_id as "workflowId", r.first_run_id as "firstRunId"
      from deliveries d join webhooks w on w.id = d.webhook_id join events e on e.id = d.event_id
        left join runs r on r.id = d.run_id
      where d.id = :id::uuid`,
    { id },
  );
  if (!row) return null;
  const { payload, workflowId, firstRunId, ...facts } = row;
  return {
    facts: { id, ...facts },
    payload,
    run: workflowId === null || firstRunId === null ? null : { workflowId, runId: executionOf(firstRunId) },
  };
}

/** The execution of a run: one that publishing woke has several runs, numbered after a slash. */
export function executionOf(firstRunId: string): string {
  return firstRunId.split("/")[0] as string;
}
