import pino, { type Logger } from "pino";
import pretty from "pino-pretty";

/** Creates the logger: JSON lines, or readable lines on a terminal. Errors are logged with their cause. */
export function createLogger(level: string): Logger {
  const options: pino.LoggerOptions = { level, base: null, serializers: { err: describeError } };
  if (!process.stdout.isTTY) return pino(options);
  return pino(options, pretty({ sync: true, translateTime: "HH:MM:ss", ignore: "pid,hostname" }));
}

/**
 * Selects the loggable properties of an error. Others are omitted, because PostgreSQL's errors contain values of rows
 * (`detail`).
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
