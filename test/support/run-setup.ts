import type { TestProject } from "vitest/node";
import findBrowser from "./browser-setup.ts";
import buildPage from "./page-setup.ts";
import startPostgres from "./postgres-setup.ts";
import startTemporal from "./temporal-setup.ts";

/**
 * Prepares what the whole run shares, all of it at the same time: one of each, whatever the files need. Files keep apart by
 * database and by task queue.
 */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const starting = [startPostgres(project), startTemporal(project)];
  const stop = async () => {
    const started = await Promise.allSettled(starting);
    await Promise.all(started.map((one) => (one.status === "fulfilled" ? one.value() : undefined)));
  };
  try {
    await Promise.all([...starting, buildPage(project), findBrowser(project)]);
  } catch (error) {
    // Vitest ends nothing of a setup that fails.
    await stop();
    throw error;
  }
  return stop;
}
