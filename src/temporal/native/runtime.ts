import { ApplicationFailure } from "@temporalio/common";
import { DefaultLogger, MetricsBuffer, makeTelemetryFilterString, Runtime } from "@temporalio/worker";
import type { Logger } from "pino";
import { DELIVERIES_FAILED, UNDELIVERED } from "../../../workflows/dispatch-input.ts";

const LEVELS = { TRACE: "trace", DEBUG: "debug", INFO: "debug", WARN: "warn", ERROR: "error" } as const;
const EXPECTED_FAILURE_TYPES: ReadonlySet<string> = new Set([DELIVERIES_FAILED, UNDELIVERED]);
/** Suppresses the SDK's warning for the retry worker, which registers no workflows by design. */
const NO_WORKFLOWS_WARNING = "No workflows registered, not polling for workflow tasks";
/** The attributes of SDK log lines that identify a workflow or activity. Others, such as task tokens, are omitted. */
const IDENTIFYING_ATTRIBUTES = ["workflowType", "workflowId", "activityType", "attempt", "taskQueue"];
/** The maximum number of metric updates that wait to be read. Further updates are dropped with a warning. */
const MAX_UPDATES = 100_000;
/**
 * Redirects the SDK's log to the service's log, with notices about workers and activities at debug level. Leaves
 * signals to the service, which stops its parts in order. Must be called once per process, before the first worker
 * starts.
 *
 * @param measures whether the SDK collects metrics
 * @returns the buffer of metric updates, to be read often; undefined without metrics
 */
export function installRuntime(log: Logger, measures = false): MetricsBuffer | undefined {
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
  const buffer = measures
    ? new MetricsBuffer({ maxBufferSize: MAX_UPDATES, useSecondsForDurations: true })
    : undefined;
  Runtime.install({
    logger,
    shutdownSignals: [],
    telemetryOptions: {
      logging: { filter: makeTelemetryFilterString({ core: "WARN", other: "ERROR" }), forward: {} },
      ...(buffer ? { metrics: { buffer } } : {}),
    },
  });
  return buffer;
}
