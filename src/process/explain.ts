import { inspect } from "node:util";
import { ConfigError } from "../config/config-error.ts";

/**
 * Formats a fatal error for the terminal: invalid settings, or the error's message and cause. With LOG_LEVEL=debug,
 * the complete error.
 *
 * @param what the failed operation, as a sentence without its final period
 */
export function explain(what: string, error: unknown): string {
  if (error instanceof ConfigError) return `Invalid configuration:\n${error.message}`;
  if (process.env.LOG_LEVEL === "debug" || !(error instanceof Error)) return inspect(error);
  const cause = error.cause instanceof Error ? `\n  because: ${error.cause.message}` : "";
  return `${what}: ${error.message}${cause}\n(set LOG_LEVEL=debug for details)`;
}
