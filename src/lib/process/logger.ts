import { trace } from "@opentelemetry/api";
import pino, { type Logger } from "pino";
import pretty from "pino-pretty";

/** The time in which repeated lines are counted, in milliseconds. */
const REPEAT_MS = 10_000;
/** The maximum length of an error's message, in characters: a line must not grow with what an error repeats. */
const MAX_MESSAGE_LENGTH = 300;
/** The maximum number of frames of an error's stack. */
const MAX_FRAMES = 8;
/** The names of errors of databases. Their stacks show the driver only, so they are not logged. */
const DATABASE_ERRORS = new Set(["DatabaseError", "KnexTimeoutError"]);

/**
 * Creates the logger: JSON lines with times of ISO 8601 in UTC, or readable lines on a terminal. Errors are logged with their cause. Lines of a traced call
 * carry its `traceId`. A line about the same database error is logged once per REPEAT_MS, with the number of lines left out as
 * `repeats`: while a database is away, each call fails alike.
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
    timestamp: pino.stdTimeFunctions.isoTime,
    serializers: { err: describeError },
    hooks: { logMethod: countRepeats() },
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

const isDatabaseError = (error: unknown): error is NodeJS.ErrnoException =>
  error instanceof Error && DATABASE_ERRORS.has(error.name);

/** Creates the hook that logs lines, and counts those that repeat a database error. A line with a `reference` is never left out. */
function countRepeats(): NonNullable<NonNullable<pino.LoggerOptions["hooks"]>["logMethod"]> {
  const counts = new Map<string, { repeats: number; tellLatest: () => void }>();
  return function (args, method, level) {
    const [fields, text] = args as unknown as [{ err?: unknown; reference?: string }, string];
    const { err, reference } = fields ?? {};
    if (!isDatabaseError(err) || reference !== undefined) return method.apply(this, args);
    const key = `${level} ${text} ${err.code ?? err.message}`;
    const tell = (repeats: number) => method.call(this, { ...fields, repeats } as never, text as never);
    const counted = counts.get(key);
    if (counted) {
      counted.repeats += 1;
      counted.tellLatest = () => tell(counted.repeats);
      return;
    }
    const count = { repeats: 0, tellLatest: () => {} };
    counts.set(key, count);
    const timer = setInterval(() => {
      if (count.repeats === 0) {
        clearInterval(timer);
        counts.delete(key);
      }
      count.tellLatest();
      Object.assign(count, { repeats: 0, tellLatest: () => {} });
    }, REPEAT_MS).unref();
    method.apply(this, args);
  };
}

/**
 * Selects the properties of an error that may be logged. Other properties are omitted, because PostgreSQL's errors contain
 * values of rows (`detail`).
 */
function describeError(error: unknown): unknown {
  if (!(error instanceof Error)) return error;
  const { name, message, stack, cause } = error;
  const { code, routine } = error as NodeJS.ErrnoException & { routine?: string };
  return {
    type: name,
    message: message.length > MAX_MESSAGE_LENGTH ? `${message.slice(0, MAX_MESSAGE_LENGTH)}…` : message,
    ...(code === undefined ? {} : { code }),
    ...(isDatabaseError(error)
      ? { routine }
      : { stack: framesOf(stack), ...(cause === undefined ? {} : { cause: describeError(cause) }) }),
  };
}

/** The frames of a stack, without the error's message. */
function framesOf(stack: string | undefined): string | undefined {
  return stack
    ?.match(/^ {4}at .*/gm)
    ?.slice(0, MAX_FRAMES)
    .join("\n");
}
