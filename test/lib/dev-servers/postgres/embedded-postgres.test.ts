import { readFile, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import {
  findRunningPostgres,
  startEmbeddedPostgres,
} from "../../../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { isRoot, NOBODY } from "../../../../src/lib/dev-servers/process/owner.ts";
import { commandOf } from "../../../../src/lib/dev-servers/process/processes.ts";
import { anyPort } from "../../../support/any-port.ts";
import { until } from "../../../support/wait.ts";
import {
  occupy,
  preparedFolder,
  query,
  recorded,
  runProgram,
  runs,
  silent,
  startIn,
  stranger,
} from "../support.ts";

const KEPT = "select answer from kept";
const ANSWER = [{ answer: 42 }];

test("a database keeps its data and its address over a stop and a start; its password is in a 0600 file alone, and it listens on 127.0.0.1 alone", async () => {
  const dataDir = await preparedFolder();
  const { lines, progress } = recorded();
  const port = await anyPort();
  const first = await startIn(dataDir, { progress, port });
  expect(first.port).toBe(port);
  const file = path.join(dataDir, "postgres-service-password");
  const password = (await readFile(file, "utf8")).trim();
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect(new URL(first.url).password).toBe(password);
  for (const place of [commandOf(first.pid) ?? "", ...lines]) expect(place).not.toContain(password);
  expect(await readFile(path.join(dataDir, "logs/postgres.log"), "utf8")).not.toContain(password);
  await expect(query(first.url.replace(password, "wrong"), "select 1")).rejects.toThrow("password");
  await first.stop();
  expect(runs(first.pid)).toBe(false);
  expect(await findRunningPostgres(dataDir)).toBeNull();

  const second = await startIn(dataDir, { port });
  expect(second.url).toBe(first.url);
  expect(await query(second.url, KEPT)).toEqual(ANSWER);
  expect(await query(second.url, "select current_setting('listen_addresses') as at")).toEqual([
    { at: "127.0.0.1" },
  ]);
});

test("the service's role is no superuser: it owns its database, and sees what monitoring needs", async () => {
  const server = await startIn(await preparedFolder());
  const rights = "rolsuper or rolcreatedb or rolcreaterole or rolreplication or rolbypassrls";
  expect(
    await query(
      server.url,
      `select current_database() as name, ${rights} as has_rights, pg_has_role('pg_monitor', 'usage') as monitors
        from pg_roles where rolname = current_user`,
    ),
  ).toEqual([{ name: "webhook", has_rights: false, monitors: true }]);
  for (const forbidden of [
    "create role intruder superuser",
    "copy pg_class to program 'true'",
    "select pg_read_file('/etc/passwd')",
    "alter system set fsync = off",
  ])
    await expect(query(server.url, forbidden)).rejects.toThrow("permission denied");
  expect(new URL(server.superuserUrl).password).not.toBe(new URL(server.url).password);
});

test("what a service killed with SIGKILL left running is stopped cleanly, even if the superuser's password was lost; its data and its address are kept", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const { program, said } = await runProgram<{ pid: number; url: string }>("start-servers.ts", [
    dataDir,
    "postgres",
    String(port),
  ]);
  await program.end("SIGKILL");
  expect(await findRunningPostgres(dataDir)).toBe(said.url);
  await rm(path.join(dataDir, "postgres-password"));
  const { lines, progress } = recorded();
  const server = await startIn(dataDir, { progress, port });
  expect(lines).toContain(`stopping PostgreSQL (pid ${said.pid}), left running by an earlier service`);
  expect(runs(said.pid)).toBe(false);
  expect(server.url).toBe(said.url);
  expect(await query(server.url, KEPT)).toEqual(ANSWER);
  expect(await query(server.superuserUrl, "select 1 as one")).toEqual([{ one: 1 }]);
  const log = await readFile(path.join(dataDir, "logs/postgres.log"), "utf8");
  expect(log).toContain("received fast shutdown request");
  expect(log).not.toContain("not properly shut down");
});

test("a taken port leads to a free one, which is kept; a stale postmaster.pid that names somebody else's process is removed, and that process not signalled", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const taker = await occupy(port);
  const first = await startIn(dataDir, { port });
  expect(first.port).not.toBe(port);
  taker.close();
  first.kill();
  await until(() => !runs(first.pid));
  // Of the user PostgreSQL runs as, since it takes no other user's process for its predecessor.
  const other = await stranger(isRoot() ? NOBODY.uid : undefined);
  const pidFile = path.join(dataDir, "postgres/data/postmaster.pid");
  await writeFile(pidFile, (await readFile(pidFile, "utf8")).replace(/^\d+/, String(other.pid)));
  expect(await findRunningPostgres(dataDir)).toBeNull();
  const second = await startIn(dataDir, { port });
  expect(second.port).toBe(first.port);
  await second.stop();
  expect(runs(other.pid)).toBe(true);
  expect([other.exitCode, other.signalCode]).toEqual([null, null]);
});

test("a server that dies is restarted on the same port, and a stopped server stays stopped", async () => {
  const dataDir = await preparedFolder();
  const { lines, progress } = recorded();
  const server = await startIn(dataDir, { progress, superviseRestart: true });
  const { pid } = server;
  server.kill();
  await until(() => lines.some((line) => line.startsWith("PostgreSQL is running again")));
  expect(server.pid).not.toBe(pid);
  expect(await query(server.url, KEPT)).toEqual(ANSWER);
  // Amid a revival, too.
  server.kill();
  await until(() => lines.filter((line) => line.includes("ended unexpectedly")).length === 2);
  await server.stop();
  expect(await findRunningPostgres(dataDir)).toBeNull();
});

test("lost and empty password files are replaced, and the data stays", async () => {
  const dataDir = await preparedFolder();
  await rm(path.join(dataDir, "postgres-password"));
  await writeFile(path.join(dataDir, "postgres-service-password"), "");
  const server = await startIn(dataDir);
  expect(new URL(server.url).password).not.toBe("");
  expect(await query(server.url, KEPT)).toEqual(ANSWER);
});

test("a start that fails says why, with what PostgreSQL logged, and stops a server that has started", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const start = () => startEmbeddedPostgres({ dataDir, progress: silent, port });
  const first = await startIn(dataDir, { port });
  // At a start, the superuser sets the password of the service's role.
  await query(first.superuserUrl, "alter system set default_transaction_read_only = on");
  await first.stop();
  await expect(start()).rejects.toThrow("read-only transaction");
  expect(await findRunningPostgres(dataDir)).toBeNull();

  await writeFile(path.join(dataDir, "postgres/data/PG_VERSION"), "9\n");
  await expect(start()).rejects.toThrow(
    /PostgreSQL ended while starting[\s\S]*initialized by PostgreSQL version 9/,
  );
});
