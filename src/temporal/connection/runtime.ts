import { ApplicationFailure } from "@temporalio/common";
import { DefaultLogger, MetricsBuffer, makeTelemetryFilterString, Runtime } from "@temporalio/worker";
import type { Logger } from "pino";
import { DELIVERIES_FAILED, UNDELIVERED } from "../../../workflows/dispatch-input.ts";

const LEVELS = { TRACE: "trace", DEBUG: "debug", INFO: "debug", WARN: "warn", ERROR: "error" } as const;
const EXPECTED: ReadonlySet<string> = new Set([DELIVERIES_FAILED, UNDELIVERED]);
/** Said of the worker of the retries, which has no workflows on purpose. */
const NO_WORKFLOWS = "No workflows registered, not polling for workflow tasks";
/** Updates of metrics that wait to be read, at most; more are lost, and the log says so. */
const MAX_UPDATES = 100_000;
/** What tells one workflow or activity from another; task tokens and the like help nobody. */
const TELLING = ["workflowType", "workflowId", "activityType", "attempt", "taskQueue"];

/**
 * Sends the SDK's log to ours, its notices about each worker and activity as debug lines, and leaves signals to the
 * service, which ends its parts in order. Once a process, before the first worker.
 *
 * @param measures whether the SDK measures
 * @returns what it measures, to be read often; undefined where it does not
 */
export function installRuntime(log: Logger, measures = false): MetricsBuffer | undefined {
  const logger = new DefaultLogger("INFO", ({ level, message, meta = {} }) => {
    const { error } = meta as { error?: unknown };
    const about = Object.fromEntries(
      TELLING.filter((name) => name in meta).map((name) => [name, meta[name]]),
    );
    // A receiver that fails is the business of the attempt's record and of the Temporal UI, not of the log.
    const expected =
      message === NO_WORKFLOWS || (error instanceof ApplicationFailure && EXPECTED.has(error.type ?? ""));
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
