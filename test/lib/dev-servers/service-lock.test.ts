import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { lockDataDir } from "../../../src/lib/dev-servers/service-lock.ts";
import { runProgram, stranger, temporaryFolder } from "./support.ts";

interface Answer {
  locked: boolean;
  message?: string;
}

test("a second service in the same process is refused until the first one stops, with its pid and not the pid of an old file", async () => {
  const dataDir = await temporaryFolder();
  const { pid } = await stranger();
  await writeFile(path.join(dataDir, "service.pid"), JSON.stringify({ pid, command: "node src/main.ts" }));
  const first = await lockDataDir(dataDir);
  await expect(lockDataDir(dataDir)).rejects.toThrow(`pid ${process.pid}`);
  await first.release();
  await first.release();
  await (await lockDataDir(dataDir)).release();
});

test("of six services that start at once after a kill, one gets the DATA_DIR, and the others report its pid", async () => {
  const dataDir = await temporaryFolder();
  const { program, said } = await runProgram<Answer>("hold-lock.ts", [dataDir]);
  expect(said.locked).toBe(true);
  await program.end("SIGKILL");
  const starters = await Promise.all(
    Array.from({ length: 6 }, () => runProgram<Answer>("hold-lock.ts", [dataDir])),
  );
  const winners = starters.filter(({ said }) => said.locked);
  expect(winners).toHaveLength(1);
  for (const { said } of starters.filter((starter) => !starter.said.locked)) {
    expect(said.message).toBe(
      `another service (pid ${winners[0]?.program.pid}) already uses ${dataDir}; stop it, or set another DATA_DIR`,
    );
  }
});

test("a DATA_DIR whose lock cannot be opened is named, with what to do", async () => {
  const dataDir = await temporaryFolder();
  await mkdir(path.join(dataDir, "service.lock"));
  await expect(lockDataDir(dataDir)).rejects.toThrow(
    `cannot lock ${dataDir}: service.lock: unable to open database file; let this user write to the folder and to the file, or set another DATA_DIR`,
  );
});
