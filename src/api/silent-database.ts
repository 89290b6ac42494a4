import { setTimeout as wait } from "node:timers/promises";
import type { Logger } from "pino";
import { LivenessProbe } from "../db/connections/liveness.ts";
import type { Db } from "../db/database.ts";
import { databaseAway } from "./errors/errors.ts";

/** A call that has waited for this long has the database asked whether it answers, in milliseconds. */
const PATIENCE_MS = 1_000;
/** How long the database has to answer, in milliseconds. */
const ANSWER_MS = 2_000;
/** Between two questions while the database does not answer, in milliseconds. */
const ASK_AGAIN_MS = 250;

/** Ends calls that wait for a database that does not answer. */
export interface SilentDatabase {
  /**
   * The work's result. The work itself is not ended.
   *
   * @throws DomainError UNAVAILABLE once the database has not answered for about 3 s, and at once while it does not
   */
  refuseWhileSilent<T>(work: () => Promise<T>): Promise<T>;
}

/** A call under way. */
interface Call {
  started: number;
  refuse: (error: Error) => void;
}

/**
 * A statement may take as long as it needs, and a server that hangs looks the same to whoever waits for it. So calls that
 * take long have the server asked over another connection: callers learn well before their deadline that it does not
 * answer, and no more work is begun and kept in memory for it.
 */
export function watchForSilence(db: Db, log: Logger): SilentDatabase {
  /** The longest under way first. */
  const calls = new Set<Call>();
  const probe = new LivenessProbe(db);
  let isSilent = false;
  let watching = false;

  async function watch(): Promise<void> {
    watching = true;
    for (;;) {
      const [oldest] = calls;
      if (!oldest && !isSilent) break;
      const patience = oldest && !isSilent ? oldest.started + PATIENCE_MS - performance.now() : 0;
      if (patience > 0) await wait(patience, undefined, { ref: false });
      else await ask();
    }
    watching = false;
    probe.close();
  }

  async function ask(): Promise<void> {
    const answers = await probe.answers(ANSWER_MS);
    if (answers) {
      if (isSilent) log.info("the database answers again");
      isSilent = false;
      await wait(PATIENCE_MS, undefined, { ref: false });
      return;
    }
    if (!isSilent)
      log.warn({ calls: calls.size }, "the database does not answer; calls are refused until it does");
    isSilent = true;
    for (const { refuse } of calls) refuse(databaseAway());
    calls.clear();
    await wait(ASK_AGAIN_MS, undefined, { ref: false });
  }

  return {
    async refuseWhileSilent(work) {
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
