import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { Client, Connection } from "@temporalio/client";
import type { TestProject } from "vitest/node";
import { build, TARGETS } from "../../scripts/build.ts";
import { startEmbeddedTemporal } from "../../src/embedded/temporal/embedded-temporal.ts";
import { SEARCH_ATTRIBUTES } from "../../src/temporal/setup/search-attributes.ts";
import { WORKFLOW_BUNDLE } from "../../src/temporal/workflow-bundle.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** `host:port` of the run's one Temporal server. */
    temporalAddress: string;
    /** File with the workflows' code. */
    workflowBundle: string;
  }
}

/** What a crash would lose is no loss to tests. */
const FAST = { synchronous: "OFF", journal_mode: "MEMORY" };
/** The server otherwise extends each timer and retry delay to a second at least, for clusters whose clocks differ. */
export const PROMPT_TIMERS = { "history.timerProcessorMaxTimeShift": '"10ms"' };
/** A queue's four partitions would forward each task and each poll to the first one. */
const ONE_PARTITION = {
  "matching.numTaskqueueReadPartitions": "1",
  "matching.numTaskqueueWritePartitions": "1",
};

/** One Temporal server and one workflow bundle for the whole run; files keep apart by task queue and schedule id. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-temporal-"));
  const progress = (line: string) => console.log(line);
  const [temporal] = await Promise.all([
    startEmbeddedTemporal({
      dataDir: folder,
      progress,
      port: 0,
      uiPort: 0,
      searchAttributes: SEARCH_ATTRIBUTES,
      sqlitePragmas: FAST,
      // Files that make a namespace wait until all parts of the server know it.
      dynamicConfig: {
        "system.namespaceCacheRefreshInterval": '"200ms"',
        ...PROMPT_TIMERS,
        ...ONE_PARTITION,
      },
    }),
    build(progress, [TARGETS.WORKFLOWS]),
  ]);
  project.provide("temporalAddress", temporal.address);
  project.provide("workflowBundle", WORKFLOW_BUNDLE);
  return async () => {
    const left = await scheduleIds(temporal.address);
    // Nobody needs what it would still write.
    temporal.kill();
    await temporal.stop();
    await rm(folder, { recursive: true, force: true });
    if (left.length > 0)
      console.error(`tests did not delete their schedules, which start runs for ever: ${left.join(", ")}`);
  };
}

async function scheduleIds(address: string): Promise<string[]> {
  const connection = await Connection.connect({ address });
  try {
    const ids: string[] = [];
    for await (const { scheduleId } of new Client({ connection }).schedule.list()) ids.push(scheduleId);
    return ids;
  } finally {
    await connection.close();
  }
}
