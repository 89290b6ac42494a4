import pino, { type Logger } from "pino";
import pretty from "pino-pretty";

/** JSON lines for machines; readable ones where a person looks at a terminal. Errors are logged with their cause. */
export function createLogger(level: string): Logger {
  const options: pino.LoggerOptions = {
    level,
    base: null,
    serializers: { err: pino.stdSerializers.errWithCause },
  };
  if (!process.stdout.isTTY) return pino(options);
  return pino(options, pretty({ sync: true, translateTime: "HH:MM:ss", ignore: "pid,hostname" }));
}
