import { Client, Connection, type WorkflowHandle } from "@temporalio/client";
import pLimit from "p-limit";
import type { Logger } from "pino";
import { stateNotFit } from "../calls/errors/index.ts";
import { DomainError } from "../contract/errors.ts";
import { clientOptions, type TemporalNames, type TemporalTarget } from "../temporal/index.ts";
import { triggerDispatch } from "./schedule.ts";

/** The timeout of the call to Temporal, in milliseconds. Short, because an API caller waits for it. */
const DEADLINE_MS = 3_000;
/** The delay before a caller may retry, in milliseconds. */
const RETRY_AFTER_MS = 2_000;

/** The maximum numbers of concurrent and of waiting searches of histories. */
const MAX_SEARCHES = { atOnce: 2, waiting: 20 };

/** The API's calls to Temporal. */
export type DispatchTrigger = ReturnType<typeof createDispatchTrigger>;

/** A run of the dispatch, by the run id of its first execution. */
interface DispatchRun {
  workflowId: string;
  runId: string;
}

/** An activity in a history, as the Temporal UI addresses it: the run id of its execution, and its event. */
interface FoundActivity {
  runId: string;
  eventId: string;
}

/** Creates a trigger that connects on first use. */
export function createDispatchTrigger(target: TemporalTarget, names: TemporalNames, log: Logger) {
  const connection = Connection.lazy(clientOptions(target));
  const client = new Client({ connection, namespace: target.namespace });
  const search = pLimit(MAX_SEARCHES.atOnce);
  const inTime = <T>(call: () => Promise<T>) => connection.withDeadline(Date.now() + DEADLINE_MS, call);

  return {
    /** The activity of a run, as `findActivity`; undefined also if Temporal does not respond in time or is busy. */
    async findActivity(run: DispatchRun, group: number | null): Promise<FoundActivity | undefined> {
      if (search.pendingCount >= MAX_SEARCHES.waiting) return undefined;
      try {
        return await search(() => inTime(() => findActivity(client, run, group)));
      } catch (err) {
        log.debug({ err, workflowId: run.workflowId }, "reading the history of a run failed");
        return undefined;
      }
    },

    /**
     * Triggers the schedule. Resolves when Temporal has accepted the request.
     *
     * @throws DomainError FAILED_PRECONDITION while the schedule is paused; UNAVAILABLE if Temporal does not respond
     */
    async trigger(): Promise<void> {
      const triggered = await inTime(() => triggerDispatch(client, names)).catch((err) => {
        log.warn({ err }, "triggering a dispatch failed");
        const retryAfterMs = RETRY_AFTER_MS;
        throw new DomainError("UNAVAILABLE", "Temporal does not respond; retry", { retryAfterMs });
      });
      if (triggered) return;
      throw stateNotFit(
        `the schedule ${names.scheduleId} is paused in Temporal; to dispatch, unpause it: temporal schedule toggle --namespace ${target.namespace} --schedule-id ${names.scheduleId} --unpause`,
      );
    },
    close: () => connection.close(),
  };
}

/**
 * The activity of a run that sends a delivery: the latest one of its retry group, or the pump of its first attempt.
 *
 * @param group the retry group; null for a delivery without retries
 * @returns undefined if several pumps could have sent it, or if the history is no longer stored
 */
async function findActivity(client: Client, { workflowId, ...first }: DispatchRun, group: number | null) {
  const pumps: FoundActivity[] = [];
  let retries: FoundActivity | undefined;
  let runId: string | null | undefined = first.runId;
  // The deadline of the caller bounds the number of executions.
  while (runId) {
    const execution: WorkflowHandle = client.workflow.getHandle(workflowId, runId);
    const { events } = await execution.fetchHistory();
    for (const { eventId, activityTaskScheduledEventAttributes: scheduled } of events ?? []) {
      const type = scheduled?.activityType?.name;
      const activity = { runId, eventId: String(eventId) };
      if (type === "deliverPending") pumps.push(activity);
      if (type === "retryDeliveries") {
        const input = Buffer.from(scheduled?.input?.payloads?.[0]?.data ?? "{}").toString();
        if ((JSON.parse(input) as { group?: number }).group === group) retries = activity;
      }
    }
    runId = events?.at(-1)?.workflowExecutionContinuedAsNewEventAttributes?.newExecutionRunId;
  }
  return retries ?? (pumps.length === 1 ? pumps[0] : undefined);
}
