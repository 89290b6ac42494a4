import { migrate } from "../../src/schema/migrate.ts";
import { startChild } from "../parts/child.ts";
import { startReceivers } from "../parts/receivers.ts";
import type { Scenario } from "../parts/scenario.ts";
import { freshDatabase } from "../parts/stage.ts";
import type { PeerMethods, PeerSettings } from "../processes/peer.ts";

/** Candidates tried on few jobs, because the best one depends on the machine. */
const CANDIDATES: PeerSettings[] = [
  { concurrentJobs: 32, localQueue: 500, completeJobBatchDelay: 100, recorders: 16 },
  { concurrentJobs: 64, localQueue: 500, completeJobBatchDelay: 100, recorders: 32 },
  { concurrentJobs: 64, localQueue: 2_000, completeJobBatchDelay: 0, recorders: 16 },
  { concurrentJobs: 64, localQueue: 2_000, completeJobBatchDelay: 250, recorders: 32 },
  { concurrentJobs: 128, localQueue: 2_000, completeJobBatchDelay: 250, recorders: 32 },
];
const PROBE = 10_000;

/** The rate of a good job queue for the same POSTs on the same PostgreSQL. */
export const peers: Scenario = {
  name: "peers",
  what: "the same POSTs, signed and recorded, as jobs of graphile-worker",
  count: { full: 20_000, small: 5_000 },
  targets: { "beaten by drain": { atLeast: 2.2 } },
  comparisons: [
    { detail: "beaten by drain", unit: "times", with: "drain", value: (own, drain) => drain / own },
  ],
  async measure(bench, count) {
    await using receivers = await startReceivers(bench, [{ status: 200 }]);
    await using database = await freshDatabase(bench);
    await migrate(database.url);
    await using child = startChild<PeerMethods>(bench, "peer.ts");
    const url = `${receivers.urls[0]}/hooks`;
    const run = (jobs: number, settings: PeerSettings) =>
      child.call("run", { databaseUrl: database.url, url, jobs, settings });
    let best = CANDIDATES[0] as PeerSettings;
    await run(PROBE, best);
    let least = Number.POSITIVE_INFINITY;
    for (const candidate of CANDIDATES) {
      const seconds = await run(PROBE, candidate);
      if (seconds < least) [least, best] = [seconds, candidate];
    }
    const seconds = await run(count, best);
    const { concurrentJobs, localQueue, completeJobBatchDelay, recorders } = best;
    const note = `${concurrentJobs} jobs at once, ${localQueue} fetched at once, completions every ${completeJobBatchDelay} ms and ${recorders} recording connections were best`;
    return [{ detail: "", unit: "POSTs/s", value: count / seconds, note }];
  },
};
