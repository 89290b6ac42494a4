import { existsSync, readdirSync } from "node:fs";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { part } from "../support/parts.ts";
import { type Program, startProgram } from "../support/program.ts";
import { pids, readProc } from "../support/run/proc.ts";
import { until } from "../support/wait.ts";

const RUN = [process.execPath, "node_modules/vitest/vitest.mjs", "run"];
const NPM = ["npm", "test", "--"];

/** Starts a run of a file of `nested`, with a folder of its own for temporary files. */
async function startRun(command: readonly string[], file: string): Promise<{ run: Program; folder: string }> {
  const folder = await mkdtemp(path.join(tmpdir(), "run-"));
  const outer = Object.keys(process.env).filter((name) => /^(VITEST|npm_)/.test(name));
  const environment = Object.fromEntries(outer.map((name) => [name, undefined]));
  const run = startProgram([...command, "--config", "test/repository/nested/vitest.config.ts", file], {
    environment: { ...environment, TMPDIR: folder },
  });
  onTestFinished(() => void run.process.kill("SIGKILL"));
  return { run, folder };
}

/** The names of all processes that use a folder below `folder` for temporary files. */
function processesOf(folder: string): string[] {
  const isOf = (pid: number) => readProc(pid, "environ").includes(`TMPDIR=${folder}/`);
  return pids().flatMap((pid) => (isOf(pid) ? [readProc(pid, "comm")] : []));
}

const isOnLinux = existsSync("/proc/self/environ");

test.runIf(isOnLinux).each([
  ["SIGINT", "a run", RUN],
  ["SIGTERM", "a run", RUN],
  ["SIGKILL", "a run", RUN],
  ["SIGTERM", "npm", NPM],
] as const)(
  "%s of %s leaves no PostgreSQL, Temporal or Chromium behind, and no file",
  async (signal, _of, command) => {
    const hasChromium = "path" in (await part("chromium"));
    const { run, folder } = await startRun(command, "waits");
    await run.until(/all parts run/);
    for (const name of [/^postgres/, /^temporal/, ...(hasChromium ? [/^chrom/] : [])])
      expect(processesOf(folder)).toContainEqual(expect.stringMatching(name));
    run.process.kill(signal);
    await until(() => processesOf(folder).length === 0 && readdirSync(folder).length === 0);
    await run.ended;
  },
);

test("a failed run says how to repeat its files, prints the log of a server that ended, and keeps the logs", async () => {
  const { run } = await startRun(RUN, "fails");
  expect(await run.ended).toBe(1);
  expect(run.printed()).toContain("PostgreSQL (pid ");
  expect(run.printed()).toMatch(/ended unexpectedly[\s\S]*database system is ready to accept connections/);
  expect(run.printed()).toContain(
    "To repeat the failed files: npm test -- test/repository/nested/fails.part.ts",
  );
  expect(run.printed()).toContain("Logs of the run's servers: test/results/postgres.log");
});
