import { DefaultLogger, makeTelemetryFilterString, Runtime } from "@temporalio/worker";
import type { Logger } from "pino";

const LEVELS = { TRACE: "trace", DEBUG: "debug", INFO: "debug", WARN: "warn", ERROR: "error" } as const;

/**
 * Sends the SDK's log to ours, its notices about each worker and activity as debug lines, and leaves signals to the
 * service, which ends its parts in order. Once a process, before the first worker.
 */
export function installRuntime(log: Logger): void {
  const logger = new DefaultLogger("INFO", ({ level, message, meta }) => {
    // Attributes of activities are ids and names; errors come with their message and stack.
    const { error, ...rest } = (meta ?? {}) as { error?: unknown };
    log[LEVELS[level]]({ temporal: rest, ...(error ? { err: error } : {}) }, message);
  });
  Runtime.install({
    logger,
    shutdownSignals: [],
    telemetryOptions: { logging: { filter: makeTelemetryFilterString({ core: "WARN", other: "ERROR" }), forward: {} } },
  });
}
