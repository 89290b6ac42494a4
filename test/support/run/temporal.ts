import path from "node:path";
import { startEmbeddedTemporal } from "../../../src/lib/dev-servers/temporal/embedded-temporal.ts";
import { SEARCH_ATTRIBUTES } from "../../../src/temporal/search-attributes.ts";
import { teller } from "./failures.ts";
import type { Started } from "./parts.ts";

/** What a crash would lose is no loss to tests. */
const FAST = { synchronous: "OFF", journal_mode: "MEMORY" };
/** The server otherwise extends each timer and retry delay to a second at least, for clusters whose clocks differ. */
export const PROMPT_TIMERS = { "history.timerProcessorMaxTimeShift": '"10ms"' };
/** A queue's four partitions would forward each task and each poll to the first one. */
const ONE_PARTITION = {
  "matching.numTaskqueueReadPartitions": "1",
  "matching.numTaskqueueWritePartitions": "1",
};

/** Starts one Temporal server for the whole run; files keep apart by task queue and schedule id. */
export async function startTemporal(folder: string): Promise<Started<"temporal">> {
  const log = path.join(folder, "logs", "temporal.log");
  const temporal = await startEmbeddedTemporal({
    dataDir: folder,
    progress: teller(log),
    port: 0,
    uiPort: 0,
    searchAttributes: SEARCH_ATTRIBUTES,
    sqlitePragmas: FAST,
    // Files that make a namespace wait until all parts of the server know it, which by default takes ten times as long.
    dynamicConfig: {
      "system.namespaceCacheRefreshInterval": '"1s"',
      ...PROMPT_TIMERS,
      ...ONE_PARTITION,
    },
  });
  return {
    part: { address: temporal.address },
    log,
    async stop() {
      // Nobody needs what it would still write.
      temporal.kill();
      await temporal.stop();
    },
  };
}
