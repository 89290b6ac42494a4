import type { Logger } from "pino";
import { systemClock } from "../process/clock.ts";

/** The interval between calls, in milliseconds. */
const INTERVAL_MS = 2_000;

/**
 * Calls a function every 2 s until it returns true or the signal aborts. Logs a failure unless the call before failed in the same way.
 * Never rejects.
 *
 * @param what names the work in the log: `${what} failed; retrying`
 */
export async function repeat(
  what: string,
  work: () => Promise<boolean>,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  let failure: string | undefined;
  while (!signal.aborted) {
    try {
      if (await work()) return;
      failure = undefined;
    } catch (err) {
      if (signal.aborted) return;
      if (String(err) !== failure) log.warn({ err }, `${what} failed; retrying`);
      failure = String(err);
    }
    await systemClock.wait(INTERVAL_MS, { signal, ref: false });
  }
}
