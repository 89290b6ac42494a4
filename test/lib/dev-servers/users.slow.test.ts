import { execFileSync } from "node:child_process";
import { readFile, stat } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import {
  findRunningPostgres,
  startEmbeddedPostgres,
} from "../../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../../src/lib/dev-servers/postgres/postgres-home.ts";
import { isRoot, NOBODY } from "../../../src/lib/dev-servers/process/owner.ts";
import { anyPort } from "../../support/any-port.ts";
import { query, recorded, stopAfterTest, temporaryFolder } from "./support.ts";

test("root in a 0700 folder gets a database that runs as nobody, kept over restarts; a copy of the folder gets its own", async ({
  skip,
}) => {
  skip(!isRoot(), "only root can become another user");
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
