import { execFileSync } from "node:child_process";
import { chown, copyFile, mkdir, readFile, stat } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { findRunningPostgres, startEmbeddedPostgres } from "../../src/embedded/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/embedded/postgres/postgres-home.ts";
import { canReach, isRoot, NOBODY } from "../../src/embedded/process/owner.ts";
import { findTemporalCli } from "../../src/embedded/temporal/temporal-cli.ts";
import { anyPort } from "../support/any-port.ts";
import { ROOT } from "../support/program.ts";
import { query, recorded, runProgram, silent, stopAfterTest, temporaryFolder } from "./support.ts";

const NEEDS_ROOT = "only root can become another user";
/** One that exists, and is not the one root gives its databases to. */
const ORDINARY = { uid: idOf("-u"), gid: idOf("-g") };

interface Answer {
  uid: number;
  address: string;
  port: number;
}

test("root in a 0700 folder gets a database that runs as nobody, kept over restarts; a copy of the folder gets its own", async ({
  skip,
}) => {
  skip(!isRoot(), NEEDS_ROOT);
  const dataDir = path.join(await temporaryFolder(0o700), ".data");
  const { lines, progress } = recorded();
  const port = await anyPort();
  const first = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress, port }));
  await query(first.url, "create table kept as select 42 as answer");
  const { elsewhere } = JSON.parse(await readFile(path.join(dataDir, "postgres.json"), "utf8")) as {
    elsewhere: string;
  };
  expect(lines.join("\n")).toContain(`keeping the database in ${elsewhere}`);
  expect(await stat(elsewhere)).toMatchObject({ ...NOBODY, mode: 0o40700 });
  expect(await stat(`/proc/${first.pid}`)).toMatchObject(NOBODY);
  await first.stop();
  const second = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress, port }));
  expect(await query(second.url, "select answer from kept")).toEqual([{ answer: 42 }]);

  const copy = `${dataDir}-copy`;
  execFileSync("cp", ["-a", dataDir, copy]);
  onTestFinished(() => removeDataDir(copy));
  expect(await findRunningPostgres(copy)).toBeNull();
  const other = stopAfterTest(
    await startEmbeddedPostgres({ dataDir: copy, progress, port: await anyPort() }),
  );
  expect(other.pid).not.toBe(second.pid);
  expect(await findRunningPostgres(dataDir)).toBe(second.url);
  await second.stop();
  await removeDataDir(dataDir);
  await expect(stat(elsewhere)).rejects.toThrow("ENOENT");
});

test("an ordinary user gets both servers, with everything below DATA_DIR", async ({ skip }) => {
  skip(!isRoot(), NEEDS_ROOT);
  skip(!(await canReach(ORDINARY, process.execPath)), `${ROOT} is closed to other users`);
  const folder = await temporaryFolder(0o711);
  const home = path.join(folder, "home");
  const tools = path.join(folder, "tools");
  for (const place of [home, tools]) await mkdir(place, { mode: 0o755 });
  await chown(home, ORDINARY.uid, ORDINARY.gid);
  // What is downloaded is in root's cache, which others may not enter.
  const cli = await findTemporalCli(folder, silent);
  await copyFile(cli, path.join(tools, "temporal"));
  const dataDir = path.join(home, "data");
  const { said } = await runProgram<Answer>("start-and-stop.ts", [dataDir], {
    ...ORDINARY,
    cwd: home,
    environment: { PATH: `${tools}:/usr/bin:/bin`, HOME: home, XDG_CACHE_HOME: "", TMPDIR: home },
  });
  expect(said.uid).toBe(ORDINARY.uid);
  expect(await stat(path.join(dataDir, "postgres/data"))).toMatchObject({
    uid: ORDINARY.uid,
    mode: 0o40700,
  });
  expect(await stat(path.join(dataDir, "temporal/temporal.db"))).toMatchObject({
    uid: ORDINARY.uid,
    mode: 0o100600,
  });

  // Root later finds it there and leaves it to its owner.
  const server = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port: said.port }));
  expect(await stat(`/proc/${server.pid}`)).toMatchObject(ORDINARY);
});

function idOf(which: "-u" | "-g"): number {
  return Number(execFileSync("id", [which, "daemon"], { encoding: "utf8" }));
}
