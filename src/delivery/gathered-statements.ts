import type { Db } from "../db/database.ts";
import { gathering } from "../db/gathering.ts";
import { type GroupStatus, groupStatuses } from "../db/queue/retry-groups.ts";
import { openRuns, type Renewal, type RunWish, renewLeases } from "../db/queue/runs.ts";

/** What activities ask of the database at their beginning and end. */
export interface GatheredStatements {
  /** Answers the id of the run's row. */
  openRun(wish: RunWish): Promise<number>;
  renewLease(renewal: Renewal): Promise<void>;
  groupStatus(runId: number, group: number): Promise<GroupStatus>;
}

/** One statement of each kind at a time: all of a run would wait for its row, and each hold a connection meanwhile. */
const GROUPS = { most: 500, atOnce: 1 };

/**
 * The retries of many webhooks begin and end together. What they ask then is gathered into few statements, so that
 * neither they nor the first attempts beside them wait for hundreds of small commits.
 */
export function gatherStatements(db: Db): GatheredStatements {
  const openRun = gathering((wishes: readonly RunWish[]) => openRuns(db, wishes), GROUPS);
  const renewLease = gathering(async (renewals: readonly Renewal[]) => {
    await renewLeases(db, renewals);
    return renewals.map(() => undefined);
  }, GROUPS);
  const status = gathering(
    (groups: readonly { runId: number; group: number }[]) => groupStatuses(db, groups),
    GROUPS,
  );
  return {
    openRun,
    renewLease,
    groupStatus: (runId, group) => status({ runId, group }),
  };
}
