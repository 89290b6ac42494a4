import type { DeliveryFacts } from "../../contract/delivery-headers.ts";
import type { Db } from "../database.ts";
import { rows } from "../database.ts";
import { type Scope, webhookIn } from "../scope.ts";

/** The request of a delivery and the run that claimed it last. */
export interface SentRequest {
  facts: DeliveryFacts;
  /** The JSON body; null if erased. */
  payload: string | null;
  /** Null if no run holds it, the run's record is deleted, or the scope is that of an app. */
  run: {
    workflowId: string;
    runId: string;
    /** The retry group of its webhook; null if the run has retried none of its deliveries. */
    group: number | null;
  } | null;
}

/**
 * The request of the delivery with this id, which must be a UUID; null if the scope has none. Runs belong to the
 * whole service and are hidden from installed apps.
 */
export async function getSentRequest(db: Db, scope: Scope, id: string): Promise<SentRequest | null> {
  const inScope = webhookIn(scope, "w");
  const [row] = await rows<{
    process: number;
    installedAppId: string | null;
    userId: string;
    test: boolean;
    payload: string | null;
    workflowId: string | null;
    firstRunId: string | null;
    group: number | null;
  }>(
    db,
    `select e.process, w.installed_app_id as "installedAppId", e.user_id as "userId", e.test, e.payload,
        r.workflow_id as "workflowId", r.first_run_id as "firstRunId", g.group_number as group
      from (
          select id, event_id, webhook_id, run_id from queue where id = :id::uuid
          union all select id, event_id, webhook_id, run_id from retries where id = :id::uuid
          union all select id, event_id, webhook_id, run_id from deliveries where id = :id::uuid
        ) d join webhooks w on w.id = d.webhook_id join events e on e.id = d.event_id
        left join runs r on r.id = d.run_id
        left join run_groups g on g.run_id = d.run_id and g.webhook_id = d.webhook_id
      where ${inScope.sql}`,
    { id, ...inScope.bindings },
  );
  if (!row) return null;
  const { payload, workflowId, firstRunId, group, ...facts } = row;
  return {
    facts: { id, ...facts },
    payload,
    run:
      scope !== "everything" || workflowId === null || firstRunId === null
        ? null
        : { workflowId, runId: firstRunId, group },
  };
}
