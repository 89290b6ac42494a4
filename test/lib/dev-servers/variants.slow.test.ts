import { mkdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { findRunningPostgres } from "../../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { findByCommand, markerOf } from "../../../src/lib/dev-servers/process/processes.ts";
import { startEmbeddedTemporal } from "../../../src/lib/dev-servers/temporal/embedded-temporal.ts";
import { findTemporalCli } from "../../../src/lib/dev-servers/temporal/temporal-cli.ts";
import { migrate } from "../../../src/schema/migrate.ts";
import { anyPort } from "../../support/any-port.ts";
import {
  killAfterTest,
  occupy,
  preparedFolder,
  query,
  recorded,
  runProgram,
  runs,
  silent,
  startIn,
  stopAfterTest,
  temporaryFolder,
} from "./support.ts";

const anyPorts = async () => ({ port: await anyPort(), uiPort: await anyPort() });
const servers = (dataDir: string) => findByCommand(`${markerOf("--db-filename")}${dataDir}/`);

test("a database of an earlier version, in which all belongs to the superuser, becomes the service's own", async () => {
  const dataDir = await preparedFolder();
  const port = await anyPort();
  const before = await startIn(dataDir, { port });
  for (const statement of [
    "alter database webhook owner to webhook",
    "revoke pg_monitor from webhook_service",
    "drop table kept",
    "drop role webhook_service",
  ])
    await query(before.superuserUrl, statement);
  await migrate(before.superuserUrl);
  await query(before.superuserUrl, "create view seen as select 1 as one");
  await query(before.superuserUrl, "create sequence counted");
  await query(before.superuserUrl, "insert into settings (name, value) values ('kept', 'yes')");
  await before.stop();
  await rm(path.join(dataDir, "postgres-service-password"));

  const { url } = await startIn(dataDir, { port });
  expect(await query(url, "select rolsuper from pg_roles where rolname = current_user")).toEqual([
    { rolsuper: false },
  ]);
  expect(await query(url, "select value from settings where name = 'kept'")).toEqual([{ value: "yes" }]);
  // As later migrations will.
  await migrate(url);
  await query(url, "alter table webhooks add column later int");
  await query(url, "alter type outcome add value 'later'");
  for (const owned of ["view seen", "sequence counted"]) await query(url, `drop ${owned}`);
  expect(await findRunningPostgres(dataDir)).toBe(url);
});

test.each([
  ["replaces itself with the program, like a version manager's", "exec"],
  ["waits for the program", ""],
])("a CLI on PATH that is a script and %s works; its left-over is found and stopped", async (_, exec) => {
  const dataDir = await temporaryFolder();
  const cli = await findTemporalCli(dataDir, silent);
  const script = path.join(dataDir, "bin/temporal");
  await mkdir(path.dirname(script));
  await writeFile(script, `#!/bin/sh\n${exec} '${cli}' "$@"\n`, { mode: 0o755 });
  vi.stubEnv("PATH", `${path.dirname(script)}:${process.env.PATH}`);
  onTestFinished(() => void vi.unstubAllEnvs());

  const { port, uiPort } = await anyPorts();
  const args = [dataDir, "temporal", String(port), String(uiPort)];
  const { program, said } = await runProgram<{ pid: number; address: string }>("start-servers.ts", args);
  const leftOver = servers(dataDir);
  expect(leftOver).toContain(said.pid);
  expect(leftOver).toHaveLength(exec ? 1 : 2);
  await program.end("SIGKILL");

  const { lines, progress } = recorded();
  const server = stopAfterTest(await startEmbeddedTemporal({ dataDir, progress, port, uiPort }));
  expect(lines).toContain(
    `stopping Temporal (pid ${leftOver.join(", ")}), left running by an earlier service`,
  );
  expect(leftOver.filter(runs)).toEqual([]);
  expect(server.address).toBe(said.address);
  await server.stop();
  expect(servers(dataDir)).toEqual([]);
});

test("two Temporals that start at once and wish for the same taken ports all come up on free ones, which are kept", async () => {
  const folders = [await temporaryFolder(), await temporaryFolder()];
  const ports = await anyPorts();
  const takers = [await occupy(ports.port), await occupy(ports.uiPort)];
  const start = async (dataDir: string) =>
    killAfterTest(await startEmbeddedTemporal({ dataDir, progress: silent, ...ports }));
  const started = await Promise.all(folders.map(start));
  const addresses = started.flatMap(({ address, uiUrl }) => [address, uiUrl]);
  expect(new Set(addresses).size).toBe(4);
  expect(addresses).not.toContain(`127.0.0.1:${ports.port}`);
  const [first] = started;
  await first?.stop();
  for (const taker of takers) taker.close();
  const again = await start(folders[0] as string);
  expect(again).toMatchObject({ address: first?.address, uiUrl: first?.uiUrl });
});
