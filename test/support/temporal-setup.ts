import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { TestProject } from "vitest/node";
import { workflowBundle } from "../../src/build/workflow-bundle.ts";
import { startEmbeddedTemporal } from "../../src/embedded/temporal/embedded-temporal.ts";
import { SEARCH_ATTRIBUTES } from "../../src/temporal/search-attributes.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** `host:port` of the run's one Temporal server. */
    temporalAddress: string;
    /** File with the code of the run's one workflow bundle. */
    workflowBundle: string;
  }
}

/** One Temporal server and one workflow bundle for the whole run; files keep apart by task queue and schedule id. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-temporal-"));
  const progress = (line: string) => console.log(line);
  const [temporal, bundle] = await Promise.all([
    startEmbeddedTemporal({
      dataDir: folder,
      progress,
      port: 0,
      uiPort: 0,
      searchAttributes: SEARCH_ATTRIBUTES,
    }),
    workflowBundle(),
  ]);
  const bundleFile = path.join(folder, "workflow-bundle.js");
  await writeFile(bundleFile, bundle.code);
  project.provide("temporalAddress", temporal.address);
  project.provide("workflowBundle", bundleFile);
  return async () => {
    await temporal.stop();
    await rm(folder, { recursive: true, force: true });
  };
}
