import { ApplicationFailure } from "@temporalio/common";
import { DefaultLogger, makeTelemetryFilterString, Runtime } from "@temporalio/worker";
import type { Logger } from "pino";
import { DELIVERIES_FAILED, UNDELIVERED } from "../../../workflows/dispatch-input.ts";

const LEVELS = { TRACE: "trace", DEBUG: "debug", INFO: "debug", WARN: "warn", ERROR: "error" } as const;
const EXPECTED_FAILURE_TYPES: ReadonlySet<string> = new Set([DELIVERIES_FAILED, UNDELIVERED]);
/** Suppresses the SDK's warning for the retry worker, which registers no workflows by design. */
const NO_WORKFLOWS_WARNING = "No workflows registered, not polling for workflow tasks";
/** The attributes of SDK log lines that identify a workflow or activity. Others, such as task tokens, are omitted. */
const IDENTIFYING_ATTRIBUTES = ["workflowType", "workflowId", "activityType", "attempt", "taskQueue"];

/**
 * Redirects the SDK's log to the service's log, with notices about workers and activities at debug level. Leaves
 * signals to the service, which stops its parts in order. Must be called once per process, before the first worker
 * starts.
 */
export function installRuntime(log: Logger): void {
  const logger = new DefaultLogger("INFO", ({ level, message, meta = {} }) => {
    const { error } = meta as { error?: unknown };
    const about = Object.fromEntries(
      IDENTIFYING_ATTRIBUTES.filter((name) => name in meta).map((name) => [name, meta[name]]),
    );
    // Failures of receivers are recorded with the attempts and shown in the Temporal UI, so the log omits them.
    const expected =
      message === NO_WORKFLOWS_WARNING ||
      (error instanceof ApplicationFailure && EXPECTED_FAILURE_TYPES.has(error.type ?? ""));
    log[expected ? "debug" : LEVELS[level]]({ ...about, ...(error ? { err: error } : {}) }, message);
  });
  Runtime.install({
    logger,
    shutdownSignals: [],
    telemetryOptions: {
      logging: { filter: makeTelemetryFilterString({ core: "WARN", other: "ERROR" }), forward: {} },
    },
  });
}
