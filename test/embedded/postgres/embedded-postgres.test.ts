import { execFileSync } from "node:child_process";
import { chmod, mkdtemp, readFile, realpath, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { beforeAll, expect, test } from "vitest";
import { migrate } from "../../../src/db/migrate.ts";
import {
  findRunningPostgres,
  startEmbeddedPostgres,
} from "../../../src/embedded/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../../src/embedded/postgres/postgres-home.ts";
import { isRoot, NOBODY } from "../../../src/embedded/process/owner.ts";
import { commandOf } from "../../../src/embedded/process/processes.ts";
import { anyPort } from "../../support/any-port.ts";
import {
  killHard,
  occupy,
  query,
  recorded,
  runProgram,
  runs,
  stopAfterTest,
  stranger,
  temporaryFolder,
  until,
} from "../support.ts";

const silent = () => {};
/** In a folder others can enter root keeps the data there too, which is where most of these tests look for it. */
const OPEN = 0o711;

let template: string;

beforeAll(async () => {
  template = await realpath(await mkdtemp(path.join(tmpdir(), "webhook-dev-")));
  await chmod(template, OPEN);
  await (await startEmbeddedPostgres({ dataDir: template, progress: silent, port: await anyPort() })).stop();
  // A copy makes its own choice of a port.
  await rm(path.join(template, "postgres.json"));
  return () => removeDataDir(template);
});

/** A DATA_DIR that had its first start already: that takes the most of a second. */
async function preparedFolder(): Promise<string> {
  const folder = await temporaryFolder(OPEN);
  execFileSync("cp", ["-a", `${template}/.`, folder]);
  return folder;
}

interface Started {
  pid: number;
  url: string;
}

test("a database keeps its data and its address over a stop and a start", async () => {
  const dataDir = await temporaryFolder(OPEN);
  const port = await anyPort();
  const first = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  expect(first.port).toBe(port);
  expect(await query(first.url, "select current_database() as name")).toEqual([{ name: "webhook" }]);
  await query(first.url, "create table kept as select 42 as answer");
  await first.stop();
  expect(runs(first.pid)).toBe(false);
  expect(await findRunningPostgres(dataDir)).toBeNull();

  const second = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  expect(second.url).toBe(first.url);
  expect(await query(second.url, "select answer from kept")).toEqual([{ answer: 42 }]);
});

test("its password is in a 0600 file alone, and it listens on 127.0.0.1 alone", async () => {
  const dataDir = await preparedFolder();
  const { lines, progress } = recorded();
  const server = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress, port: await anyPort() }));
  const file = path.join(dataDir, "postgres-service-password");
  const password = (await readFile(file, "utf8")).trim();
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect(new URL(server.url).password).toBe(password);
  for (const place of [commandOf(server.pid) ?? "", ...lines]) expect(place).not.toContain(password);
  expect(await readFile(path.join(dataDir, "logs/postgres.log"), "utf8")).not.toContain(password);
  await expect(query(server.url.replace(password, "wrong"), "select 1")).rejects.toThrow("password");
  expect(await query(server.url, "select current_setting('listen_addresses') as at")).toEqual([
    { at: "127.0.0.1" },
  ]);
});

test("what a service killed with SIGKILL left running is stopped cleanly; its data and its port are kept", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const { child, said } = await runProgram<Started>("start-servers.ts", [dataDir, "postgres", String(port)]);
  await query(said.url, "create table kept as select 42 as answer");
  await killHard(child);
  expect(await findRunningPostgres(dataDir)).toBe(said.url);
  const { lines, progress } = recorded();
  const server = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress, port }));
  expect(lines).toContain(`stopping PostgreSQL (pid ${said.pid}), left running by an earlier service`);
  expect(runs(said.pid)).toBe(false);
  expect(server.url).toBe(said.url);
  expect(await query(server.url, "select answer from kept")).toEqual([{ answer: 42 }]);
  const log = await readFile(path.join(dataDir, "logs/postgres.log"), "utf8");
  expect(log).toContain("received fast shutdown request");
  expect(log).not.toContain("not properly shut down");
});

test("a left-over whose password was lost is stopped before it is given a new one", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const { child, said } = await runProgram<Started>("start-servers.ts", [dataDir, "postgres", String(port)]);
  await killHard(child);
  await rm(path.join(dataDir, "postgres-password"));
  const server = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  expect(runs(said.pid)).toBe(false);
  expect(await query(server.superuserUrl, "select 1 as one")).toEqual([{ one: 1 }]);
});

test("a stale postmaster.pid that names somebody else's process is removed, and that process not signalled", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const first = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  first.kill();
  const pidFile = path.join(dataDir, "postgres/data/postmaster.pid");
  await until(() => !runs(first.pid));
  // Of the user PostgreSQL runs as, since it takes no other user's process for its predecessor.
  const other = await stranger(isRoot() ? NOBODY.uid : undefined);
  await writeFile(pidFile, (await readFile(pidFile, "utf8")).replace(/^\d+/, String(other.pid)));
  expect(await findRunningPostgres(dataDir)).toBeNull();
  const second = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  await second.stop();
  expect(runs(other.pid)).toBe(true);
  expect([other.exitCode, other.signalCode]).toEqual([null, null]);
});

test("a taken port leads to a free one, which is kept", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const taker = await occupy(port);
  const first = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  expect(first.port).not.toBe(port);
  await first.stop();
  taker.close();
  const second = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  expect(second.port).toBe(first.port);
});

test("two that start at once and wish for the same port both come up", async () => {
  const folders = [await preparedFolder(), await preparedFolder()];
  const port = await anyPort();
  const start = async (dataDir: string) =>
    stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  const servers = await Promise.all(folders.map(start));
  expect(new Set(servers.map((server) => server.port)).size).toBe(2);
});

test("one that dies unasked is started again on the same port, and one that is stopped stays stopped", async () => {
  const dataDir = await preparedFolder();
  const { lines, progress } = recorded();
  const port = await anyPort();
  const server = stopAfterTest(
    await startEmbeddedPostgres({ dataDir, progress, port, superviseRestart: true }),
  );
  await query(server.url, "create table kept as select 42 as answer");
  const { pid } = server;
  server.kill();
  await until(() => lines.some((line) => line.startsWith("PostgreSQL is running again")));
  expect(server.pid).not.toBe(pid);
  expect(await query(server.url, "select answer from kept")).toEqual([{ answer: 42 }]);
  // Amid a revival, too.
  server.kill();
  await until(() => lines.filter((line) => line.includes("ended unexpectedly")).length === 2);
  await server.stop();
  expect(await findRunningPostgres(dataDir)).toBeNull();
});

test("one that was killed can be started again by hand, at once", async () => {
  const dataDir = await preparedFolder();
  const server = stopAfterTest(
    await startEmbeddedPostgres({ dataDir, progress: silent, port: await anyPort() }),
  );
  server.kill();
  await server.restart();
  expect(await query(server.url, "select 1 as one")).toEqual([{ one: 1 }]);
  await server.stop();
  await server.restart();
  expect(await query(server.url, "select 1 as one")).toEqual([{ one: 1 }]);
});

test.each([
  ["lost", (file: string) => rm(file)],
  ["empty", (file: string) => writeFile(file, "")],
])("%s password files are replaced, and the data stays", async (_how, damage) => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const first = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  await query(first.url, "create table kept as select 42 as answer");
  await first.stop();
  await damage(path.join(dataDir, "postgres-password"));
  await damage(path.join(dataDir, "postgres-service-password"));
  const second = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  expect(second.url).not.toBe(first.url);
  expect(await query(second.url, "select answer from kept")).toEqual([{ answer: 42 }]);
});

test("a data folder PostgreSQL cannot use gives an error with what it logged", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const first = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  await first.stop();
  await writeFile(path.join(dataDir, "postgres/data/PG_VERSION"), "9\n");
  await expect(startEmbeddedPostgres({ dataDir, progress: silent, port })).rejects.toThrow(
    /PostgreSQL ended while starting[\s\S]*initialized by PostgreSQL version 9/,
  );
});

test("a start that fails after the server has started stops the server", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const first = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  const superuserUrl = new URL(first.superuserUrl);
  superuserUrl.pathname = "postgres";
  await query(superuserUrl.href, "alter database webhook with allow_connections false");
  await first.stop();
  const failing = startEmbeddedPostgres({ dataDir, progress: silent, port });
  await expect(failing).rejects.toThrow("not currently accepting connections");
  expect(await findRunningPostgres(dataDir)).toBeNull();
});

const ROLE =
  "select rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls from pg_roles where rolname = current_user";
const NO_RIGHTS = {
  rolsuper: false,
  rolcreatedb: false,
  rolcreaterole: false,
  rolreplication: false,
  rolbypassrls: false,
};

test("the service's role is no superuser: it owns its database, and sees what monitoring needs", async () => {
  const server = stopAfterTest(
    await startEmbeddedPostgres({ dataDir: await preparedFolder(), progress: silent, port: await anyPort() }),
  );
  expect(await query(server.url, ROLE)).toEqual([NO_RIGHTS]);
  expect(await query(server.url, "select pg_has_role('pg_monitor', 'usage') as monitors")).toEqual([
    { monitors: true },
  ]);
  await expect(query(server.url, "create role intruder superuser")).rejects.toThrow("permission denied");
  await expect(query(server.url, "copy pg_class to program 'true'")).rejects.toThrow("permission denied");
  await expect(query(server.url, "select pg_read_file('/etc/passwd')")).rejects.toThrow("permission denied");
  await expect(query(server.url, "alter system set fsync = off")).rejects.toThrow("permission denied");
  expect(new URL(server.superuserUrl).password).not.toBe(new URL(server.url).password);
});

test("a database of an earlier version, in which all belongs to the superuser, becomes the service's own", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const before = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  await query(before.superuserUrl, "alter database webhook owner to webhook");
  await query(before.superuserUrl, "revoke pg_monitor from webhook_service");
  await query(before.superuserUrl, "drop role webhook_service");
  await migrate(before.superuserUrl);
  await query(before.superuserUrl, "create view seen as select 1 as one");
  await query(before.superuserUrl, "create sequence counted");
  await query(before.superuserUrl, "insert into settings (name, value) values ('kept', 'yes')");
  await before.stop();
  await rm(path.join(dataDir, "postgres-service-password"));

  const after = stopAfterTest(await startEmbeddedPostgres({ dataDir, progress: silent, port }));
  expect(await query(after.url, ROLE)).toEqual([NO_RIGHTS]);
  expect(await query(after.url, "select value from settings where name = 'kept'")).toEqual([
    { value: "yes" },
  ]);
  const foreign = `select c.oid::regclass::text as name from pg_class c
      join pg_namespace n on n.oid = relnamespace and nspname = 'public' where relowner <> current_user::regrole
    union all select typname from pg_type t
      join pg_namespace n on n.oid = typnamespace and nspname = 'public' where typowner <> current_user::regrole
    union all select proname from pg_proc p
      join pg_namespace n on n.oid = pronamespace and nspname = 'public' where proowner <> current_user::regrole`;
  expect(await query(after.url, foreign)).toEqual([]);
  // As later migrations will.
  await migrate(after.url);
  await query(after.url, "alter table webhooks add column later int");
  await query(after.url, "alter type outcome add value 'later'");
  await query(after.url, "drop view seen");
  expect(await findRunningPostgres(dataDir)).toBe(after.url);
});
