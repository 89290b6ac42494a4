import { Client, Connection } from "@temporalio/client";
import pLimit from "p-limit";
import type { Logger } from "pino";
import { DomainError } from "../contract/errors.ts";
import { followApiKey } from "./connection/api-key.ts";
import type { TemporalNames } from "./connection/names.ts";
import { clientOptions, type TemporalTarget } from "./connection/target.ts";
import { type DispatchRunKey, type FoundActivity, findActivity } from "./find-activity.ts";
import { triggerDispatch } from "./setup/schedule.ts";

/** The timeout of the call to Temporal, in milliseconds. Short, because an API caller waits for it. */
const DEADLINE_MS = 3_000;
/** The delay before a caller may retry, in milliseconds. */
const RETRY_AFTER_MS = 2_000;

/** The maximum numbers of concurrent and of waiting searches of histories. */
const MAX_SEARCHES = { atOnce: 2, waiting: 20 };

/** The API's calls to Temporal. */
export interface DispatchTrigger {
  /**
   * Triggers the schedule. Resolves when Temporal has accepted the request.
   *
   * @throws DomainError FAILED_PRECONDITION while the schedule is paused; UNAVAILABLE if Temporal does not respond
   */
  trigger: () => Promise<void>;
  /** The activity of a run, as `findActivity`; undefined also if Temporal does not respond in time or is busy. */
  findActivity: (run: DispatchRunKey, group: number | null) => Promise<FoundActivity | undefined>;
  close(): Promise<void>;
}

/** Creates a trigger that connects on first use. */
export function createDispatchTrigger(
  target: TemporalTarget,
  names: TemporalNames,
  log: Logger,
): DispatchTrigger {
  const connection = Connection.lazy(clientOptions(target.connectionOptions));
  const client = new Client({ connection, namespace: target.namespace });
  const stopFollowing = followApiKey(target, [connection], log);

  const search = pLimit(MAX_SEARCHES.atOnce);

  return {
    async findActivity(run, group) {
      if (search.pendingCount >= MAX_SEARCHES.waiting) return undefined;
      try {
        return await search(() =>
          connection.withDeadline(Date.now() + DEADLINE_MS, () => findActivity(client, run, group)),
        );
      } catch (err) {
        log.debug({ err, workflowId: run.workflowId }, "reading the history of a run failed");
        return undefined;
      }
    },

    async trigger() {
      let triggered: boolean;
      try {
        triggered = await connection.withDeadline(Date.now() + DEADLINE_MS, () =>
          triggerDispatch(client, names),
        );
      } catch (err) {
        log.warn({ err }, "triggering a dispatch failed");
        throw new DomainError("UNAVAILABLE", "Temporal does not respond; retry", {
          retryAfterMs: RETRY_AFTER_MS,
        });
      }
      if (triggered) return;
      throw new DomainError(
        "FAILED_PRECONDITION",
        `the schedule ${names.scheduleId} is paused in Temporal; to dispatch, unpause it: temporal schedule toggle --namespace ${target.namespace} --schedule-id ${names.scheduleId} --unpause`,
        { reason: "STATE_NOT_FIT" },
      );
    },
    async close() {
      stopFollowing();
      await connection.close();
    },
  };
}
