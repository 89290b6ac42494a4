import { inspect } from "node:util";
import { ConfigError } from "./config-error.ts";

/**
 * Formats a fatal error for the terminal: invalid settings, or the error's message and cause. With LOG_LEVEL=debug,
 * the complete error.
 *
 * @param what the failed operation, as a sentence without its final period
 */
export function explain(what: string, error: unknown): string {
  if (error instanceof ConfigError) return `Invalid configuration:\n${error.message}`;
  if (process.env.LOG_LEVEL === "debug" || !(error instanceof Error)) return inspect(error);
  return `${what}: ${describe(error)}\n(set LOG_LEVEL=debug for details)`;
}

/** The error's message and cause. Of an error that happened while another one was handled, both, the first one first. */
function describe(error: Error): string {
  if (error instanceof SuppressedError)
    return [error.suppressed, error.error].map(describe).join("\n  and: ");
  return `${error.message}${error.cause instanceof Error ? `\n  because: ${error.cause.message}` : ""}`;
}
