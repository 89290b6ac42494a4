import { inspect } from "node:util";
import { ConfigError } from "../config/config.ts";

/**
 * Why a program of ours ended, for whoever started it: what is wrong with the settings, or the error's message with its
 * cause; all there is with LOG_LEVEL=debug.
 *
 * @param what could not be done, as a sentence without its end
 */
export function explain(what: string, error: unknown): string {
  if (error instanceof ConfigError) return `Settings that cannot be used:\n${error.message}`;
  if (process.env.LOG_LEVEL === "debug" || !(error instanceof Error)) return inspect(error);
  const cause = error.cause instanceof Error ? `\n  because: ${error.cause.message}` : "";
  return `${what}: ${error.message}${cause}\n(LOG_LEVEL=debug tells more)`;
}
