import { execFile } from "node:child_process";
import { appendFile, chown, mkdir, rm, stat, writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import pg from "pg";

import type { EmbeddedPostgres } from "../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { findPostgresBinaries } from "../../src/lib/dev-servers/postgres/postgres-binaries.ts";
import { assertServes } from "../../src/lib/dev-servers/postgres/postgres-client.ts";
import { type ServerDefinition, startServer } from "../../src/lib/dev-servers/process/server-process.ts";
import { anyPort } from "../support/any-port.ts";
import { until } from "../support/wait.ts";

/** What the standby calls itself, and its slot. */
const NAME = "standby";
/** Of the files of a running server, those that are none of its copy's. */
const NOT_COPIED = ["postmaster.pid", "postmaster.opts", "pg_wal", "pg_replslot"];

/** A copy of a PostgreSQL that follows it: each transaction is in both before its end is told. */
export type Standby = Awaited<ReturnType<typeof startStandby>>;

/** Makes a standby of a running PostgreSQL, below its folder, and makes the replication synchronous. */
export async function startStandby(primary: EmbeddedPostgres) {
  const port = await anyPort();
  const at = (url: string) => Object.assign(new URL(url), { port: String(port) }).href;
  return withSuperuser(primary.superuserUrl, async (ask) => {
    const [row] = await ask("show data_directory");
    const data = String(row?.data_directory);
    const server = await serverIn(await copy(data, ask, primary), port, at(primary.superuserUrl));
    const control = await startServer(async () => server, { progress: () => {} });
    const isAt = async (column: string, state: string) => {
      const [found] = await ask(
        `select ${column} as now from pg_stat_replication where application_name = '${NAME}'`,
      );
      return found?.now === state;
    };
    await until(() => isAt("state", "streaming"));
    await ask(`alter system set synchronous_standby_names = '${NAME}'`);
    await ask("select pg_reload_conf()");
    await until(() => isAt("sync_state", "sync"));
    return Object.assign(control, {
      /** Address of the service's database in it; only reads until it is promoted. */
      url: at(primary.url),
      /** Makes it take writes; the other one must have ended for good. */
      promote: () =>
        withSuperuser(at(primary.superuserUrl), async (promote) => {
          const [promoted] = await promote("select pg_promote(true, 60) as done");
          if (promoted?.done !== true) throw new Error("the standby was not promoted within 60 s");
        }),
      /** Starts the former primary again, as a standby of this one. It must have been stopped, not killed, before the promotion. */
      async follow() {
        await becomeStandbyOf(at(primary.superuserUrl), data);
        await primary.restart();
      },
    });
  });
}

type Ask = (sql: string) => Promise<Record<string, unknown>[]>;

async function withSuperuser<T>(url: string, use: (ask: Ask) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => {});
  await client.connect();
  try {
    return await use(async (sql) => (await client.query(sql)).rows);
  } finally {
    await client.end();
  }
}

/** A base backup, as PostgreSQL's documentation describes it without pg_basebackup. @returns its folder */
async function copy(data: string, ask: Ask, { superuserUrl }: EmbeddedPostgres): Promise<string> {
  const folder = path.join(path.dirname(data), NAME);
  await ask(`select pg_create_physical_replication_slot('${NAME}', true)`);
  await ask(`select pg_backup_start('${NAME}', true)`);
  await promisify(execFile)("cp", ["-a", data, folder]);
  const [stopped] = await ask("select labelfile from pg_backup_stop()");
  for (const name of NOT_COPIED) await rm(path.join(folder, name), { recursive: true, force: true });
  await becomeStandbyOf(superuserUrl, folder);
  await appendFile(path.join(folder, "postgresql.auto.conf"), `primary_slot_name = '${NAME}'\n`);
  await writeFile(path.join(folder, "backup_label"), String(stopped?.labelfile));
  for (const name of ["pg_wal", "pg_replslot"]) await mkdir(path.join(folder, name), { mode: 0o700 });
  const { uid, gid } = await stat(data);
  for (const name of ["backup_label", "pg_wal", "pg_replslot"])
    await chown(path.join(folder, name), uid, gid);
  return folder;
}

/** Lets the server of a folder follow another one from its next start. @param primaryUrl the superuser's URL of the other one */
async function becomeStandbyOf(primaryUrl: string, folder: string): Promise<void> {
  const { hostname, port, username, password } = new URL(primaryUrl);
  const from = `host=${hostname} port=${port} user=${username} password=${decodeURIComponent(password)}`;
  await appendFile(
    path.join(folder, "postgresql.auto.conf"),
    `primary_conninfo = '${from} application_name=${NAME}'\n`,
  );
  await writeFile(path.join(folder, "standby.signal"), "");
  const { uid, gid } = await stat(folder);
  await chown(path.join(folder, "standby.signal"), uid, gid);
}

async function serverIn(data: string, port: number, superuserUrl: string): Promise<ServerDefinition> {
  const { uid, gid } = await stat(data);
  const owner = process.getuid?.() === 0 ? { uid, gid } : null;
  const settings = {
    listen_addresses: "127.0.0.1",
    port: String(port),
    unix_socket_directories: "",
    // A standby needs as many as its primary.
    max_connections: "200",
    // Commits wait for it; the default is 5 s.
    wal_retrieve_retry_interval: "200ms",
  };
  return {
    name: "PostgreSQL's standby",
    file: (await findPostgresBinaries(owner, () => {})).postgres,
    args: ["-D", data, ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])],
    logFile: `${data}.log`,
    pidFile: `${data}.pid`,
    cwd: path.dirname(data),
    owner,
    prepare: () => rm(path.join(data, "postmaster.pid"), { force: true }),
    probe: () => assertServes(superuserUrl, data),
    startTimeoutMs: 120_000,
    stopSteps: [
      { signal: "SIGINT", waitMs: 20_000 },
      { signal: "SIGKILL", waitMs: 5_000 },
    ],
  };
}
