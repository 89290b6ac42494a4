import pino, { type Logger } from "pino";
import pretty from "pino-pretty";

/** JSON lines for machines; readable ones where a person looks at a terminal. Errors are logged with their cause. */
export function createLogger(level: string): Logger {
  const options: pino.LoggerOptions = { level, base: null, serializers: { err: describeError } };
  if (!process.stdout.isTTY) return pino(options);
  return pino(options, pretty({ sync: true, translateTime: "HH:MM:ss", ignore: "pid,hostname" }));
}

/** What tells what went wrong, and nothing else: PostgreSQL's errors carry the values of rows too (`detail`). */
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
