import { expect, onTestFinished, test, vi } from "vitest";
import { startEmbeddedParts } from "../../src/app/embedded-parts.ts";
import { readConfig } from "../../src/config/config.ts";
import { findRunningPostgres } from "../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { lockDataDir } from "../../src/lib/dev-servers/service-lock.ts";
import { preparedFolder, silent, temporalServers } from "../lib/dev-servers/support.ts";
import { until } from "../support/wait.ts";

test("a start that is given up stops what has started", async () => {
  const dataDir = await preparedFolder();
  const giveUp = new AbortController();
  // Temporal starts next.
  const progress = (line: string) => line.startsWith("PostgreSQL is running") && giveUp.abort();
  const starting = startEmbeddedParts(readConfig({ DATA_DIR: dataDir }), {}, progress, giveUp.signal);
  await expect(starting).rejects.toThrow("aborted");
  expect(await findRunningPostgres(dataDir)).toBeNull();
  expect(temporalServers(dataDir)).toEqual([]);
  await (await lockDataDir(dataDir)).release();
});

test("a server that cannot be stopped is reported, and the parts after it are stopped", async () => {
  const dataDir = await preparedFolder();
  const config = readConfig({ DATA_DIR: dataDir, ROLE: "all" });
  const { stop } = await startEmbeddedParts({ ...config, role: "api" }, {}, silent);
  // The signal that stops PostgreSQL arrives, but is said to be refused.
  const { kill } = process;
  const signals = vi.spyOn(process, "kill").mockImplementation((pid, signal) => {
    kill.call(process, pid, signal);
    if (signal === "SIGINT") throw new Error("kill EPERM");
    return true;
  });
  onTestFinished(() => signals.mockRestore());
  await expect(stop()).rejects.toThrow("kill EPERM");
  await (await lockDataDir(dataDir)).release();
  // It uses the folder until then.
  await until(async () => (await findRunningPostgres(dataDir)) === null);
});
