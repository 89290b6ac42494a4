import { trace } from "@opentelemetry/api";
import pino, { type Logger } from "pino";
import pretty from "pino-pretty";

/**
 * Creates the logger: JSON lines, or readable lines on a terminal. Errors are logged with their cause. Lines of a traced call
 * carry its `traceId`.
 *
 * @param level the lowest level that is logged, such as `info`
 * @param about the fields of every line, such as the role and the version. Defaults to none
 * @param destination receives the lines as JSON, instead of the standard output
 */
export function createLogger(
  level: string,
  about: Record<string, string> | null = null,
  destination?: pino.DestinationStream,
): Logger {
  const options: pino.LoggerOptions = {
    level,
    base: about,
    serializers: { err: describeError },
    mixin() {
      const traceId = trace.getActiveSpan()?.spanContext().traceId;
      return traceId === undefined ? {} : { traceId };
    },
  };
  if (destination) return pino(options, destination);
  if (!process.stdout.isTTY) return pino(options);
  return pino(
    options,
    pretty({ sync: true, translateTime: "HH:MM:ss", ignore: "pid,hostname,role,version" }),
  );
}

/**
 * Selects the properties of an error that may be logged. Other properties are omitted, because PostgreSQL's errors contain
 * values of rows (`detail`).
 */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const { name, message, stack, cause } = error;
  const { code } = error as NodeJS.ErrnoException;
  return {
    type: name,
    message,
    ...(code === undefined ? {} : { code }),
    stack,
    ...(cause === undefined ? {} : { cause: describeError(cause) }),
  };
}
