import type { Db } from "../db/database.ts";
import { gathering } from "../db/gathering.ts";
import { openRuns, type Renewal, type RunWish, renewLeases } from "../db/queue/runs.ts";

/** Statements that activities run when they start and end, in batches. */
export interface GatheredStatements {
  /** Returns the id of the run's row. */
  openRun(wish: RunWish): Promise<number>;
  renewLease(renewal: Renewal): Promise<void>;
}

/**
 * Batch limits. Only one statement of each kind runs at a time: statements of one run lock the same row, and every
 * waiting one would occupy a connection.
 */
const GROUPS = { most: 500, atOnce: 1 };

/**
 * Batches the statements that retry activities run when they start and end. Many activities start and end together;
 * without batching, hundreds of small commits delay them and concurrent first attempts.
 */
export function gatherStatements(db: Db): GatheredStatements {
  const openRun = gathering((wishes: readonly RunWish[]) => openRuns(db, wishes), GROUPS);
  const renewLease = gathering(async (renewals: readonly Renewal[]) => {
    await renewLeases(db, renewals);
    return renewals.map(() => undefined);
  }, GROUPS);
  return { openRun, renewLease };
}
