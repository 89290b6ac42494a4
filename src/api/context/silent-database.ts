import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { databaseAway, startingError } from "../../calls/errors/index.ts";
import { type Db, LivenessProbe } from "../../lib/pg/index.ts";

/** The duration of a call after which the database is checked, in milliseconds. */
const CHECK_AFTER_MS = 1_000;
/** The timeout of a check, in milliseconds. */
const CHECK_TIMEOUT_MS = 2_000;
/** The interval between checks while the database does not respond, in milliseconds. */
const RECHECK_INTERVAL_MS = 250;

/** Ends calls that wait for an unresponsive database. */
export interface SilentDatabase {
  /**
   * Returns the work's result. The work itself is not cancelled.
   *
   * @throws DomainError UNAVAILABLE until the schema is prepared
   * @throws DomainError UNAVAILABLE when the database has not responded for about 3 s, and immediately while it does
   *   not respond
   */
  refuseWhileSilent<T>(work: () => Promise<T>): Promise<T>;
}

/** A call in progress. */
interface Call {
  started: number;
  refuse: (error: Error) => void;
}

/**
 * Detects an unresponsive database. A slow statement and a hanging server look the same to a waiting call, so long
 * calls trigger a check over another connection. Callers get an error well before their deadline, and no more work
 * accumulates in memory.
 *
 * @param isPrepared whether the schema is that of this version
 */
export function watchForSilence(db: Db, log: Logger, isPrepared: () => boolean): SilentDatabase {
  /** The longest running first. */
  const calls = new Set<Call>();
  const probe = new LivenessProbe(db);
  let isSilent = false;
  let watching = false;

  async function watch(): Promise<void> {
    watching = true;
    for (;;) {
      const [oldest] = calls;
      if (!oldest && !isSilent) break;
      const patience = oldest && !isSilent ? oldest.started + CHECK_AFTER_MS - performance.now() : 0;
      if (patience > 0) await wait(patience, undefined, { ref: false });
      else await ask();
    }
    watching = false;
    probe.close();
  }

  async function ask(): Promise<void> {
    const answers = await probe.answers(CHECK_TIMEOUT_MS);
    if (answers) {
      if (isSilent) log.info("the database responds again");
      isSilent = false;
      await wait(CHECK_AFTER_MS, undefined, { ref: false });
      return;
    }
    if (!isSilent) log.warn({ calls: calls.size }, "the database does not respond; rejecting calls");
    isSilent = true;
    for (const { refuse } of calls) refuse(databaseAway());
    calls.clear();
    await wait(RECHECK_INTERVAL_MS, undefined, { ref: false });
  }

  return {
    async refuseWhileSilent(work) {
      if (!isPrepared()) throw startingError();
      if (isSilent) throw databaseAway();
      return new Promise((resolve, reject) => {
        const call = { started: performance.now(), refuse: reject };
        calls.add(call);
        work()
          .then(resolve, reject)
          .finally(() => calls.delete(call));
        if (!watching) void watch();
      });
    },
  };
}
