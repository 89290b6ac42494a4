import { existsSync } from "node:fs";
import { readFile, realpath, rm } from "node:fs/promises";
import path from "node:path";
import { choosePort } from "../process/ports.ts";
import { commandOf, type StopStep } from "../process/processes.ts";
import {
  findServer,
  type ServerControl,
  type StartOptions,
  startServer,
  stopLeftOver,
} from "../process/server-process.ts";
import { ensureDataDir } from "../process/state-file.ts";
import { findPostgresBinaries } from "./postgres-binaries.ts";
import { addressOf, assertServes, ensureServiceDatabase } from "./postgres-client.ts";
import { ensureCluster, ensureServiceLogin, findServiceLogin } from "./postgres-cluster.ts";
import {
  findPostgresHome,
  type PostgresHome,
  preparePostgresHome,
  readPostgresRecord,
  writePostgresRecord,
} from "./postgres-home.ts";

/** A running embedded PostgreSQL. */
export interface EmbeddedPostgres extends ServerControl {
  /** The connection URL of the database `webhook` for its owner. Contains the password: do not log. */
  url: string;
  /** The same URL for the superuser. Not used by the service; tests create databases with it. */
  superuserUrl: string;
  port: number;
}

/** Options of `startEmbeddedPostgres`. */
export interface EmbeddedPostgresOptions extends StartOptions {
  dataDir: string;
  /** The preferred port. Defaults to 5433. If it is taken, a free one is chosen and kept over restarts. */
  port?: number;
  /** Additional PostgreSQL settings, by name; they override the defaults. Visible to other users: no secrets. */
  settings?: Record<string, string>;
}

const DATABASE = "webhook";
const DEFAULT_PORT = 5433;
/**
 * The timeout of a start, in milliseconds. Long, because recovery after a crash reads the log first. An exit is
 * detected immediately.
 */
const START_TIMEOUT_MS = 120_000;
/** PostgreSQL's fast shutdown, then its immediate one (with recovery at the next start), then SIGKILL. */
const STOP_STEPS: readonly StopStep[] = [
  { signal: "SIGINT", waitMs: 20_000 },
  { signal: "SIGQUIT", waitMs: 5_000 },
  { signal: "SIGKILL", waitMs: 5_000 },
];

/**
 * Starts the PostgreSQL of this DATA_DIR on 127.0.0.1; creates it at the first start. First stops a server that a
 * killed service left running. Only one caller per DATA_DIR at a time (`lockDataDir`).
 *
 * @throws Error with the remedy: programs missing, folder inaccessible, or the end of the server's log; or if
 *   `signal` aborts
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const { progress } = options;
  const dataDir = await ensureDataDir(options.dataDir);
  const home = await preparePostgresHome(dataDir, progress);
  const binaries = await findPostgresBinaries(home.owner, progress);
  const identity = { ...placeOf(dataDir, home), name: "PostgreSQL", stopSteps: STOP_STEPS };
  await stopLeftOver(identity, progress);
  const superuser = await ensureCluster(dataDir, home, binaries, progress);
  const service = await ensureServiceLogin(dataDir);
  const { port: kept } = await readPostgresRecord(dataDir);
  const asked = options.port ?? DEFAULT_PORT;

  let port = 0;
  const control = await startServer(async () => {
    port = await choosePort(kept === undefined ? [asked] : [kept, asked]);
    await writePostgresRecord(dataDir, { port });
    return {
      ...identity,
      file: binaries.postgres,
      args: ["-D", home.data, ...settingsOf(port, options.settings)],
      logFile: path.join(dataDir, "logs", "postgres.log"),
      owner: home.owner,
      prepare: () => removeStalePidFile(home.data),
      probe: () => assertServes(addressOf(superuser, port, "postgres"), home.data),
      startTimeoutMs: START_TIMEOUT_MS,
    };
  }, options);
  try {
    await ensureServiceDatabase(addressOf(superuser, port, "postgres"), service, DATABASE);
  } catch (error) {
    await control.stop();
    throw error;
  }
  progress(`PostgreSQL is running on 127.0.0.1:${port} (pid ${control.pid})`);
  return Object.assign(control, {
    url: addressOf(service, port, DATABASE),
    superuserUrl: addressOf(superuser, port, DATABASE),
    port,
  });
}

/**
 * The connection URL of the running embedded database of this DATA_DIR, including the password; null if none is
 * running. Starts nothing.
 *
 * @throws Error if its files are not readable
 */
export async function findRunningPostgres(dataDir: string): Promise<string | null> {
  const folder = await realpath(dataDir).catch(() => null);
  if (folder === null) return null;
  const [login, home] = [await findServiceLogin(folder), await findPostgresHome(folder)];
  const { port } = await readPostgresRecord(folder);
  if (login === null || home === null || port === undefined) return null;
  return (await findServer(placeOf(folder, home))) === null ? null : addressOf(login, port, DATABASE);
}

/** Whether this DATA_DIR has an embedded database, running or not. Creates nothing. */
export async function hasPostgres(dataDir: string): Promise<boolean> {
  const folder = await realpath(dataDir).catch(() => null);
  const home = folder === null ? null : await findPostgresHome(folder);
  return home !== null && existsSync(home.data);
}

/**
 * Removes PostgreSQL's pid file, whose pid may belong to another process now: PostgreSQL would mistake that for a server of this folder.
 * Keeps the file of a server that runs, so that PostgreSQL names it in its error. Without the file, its shared memory would still keep a
 * second server out.
 */
async function removeStalePidFile(data: string): Promise<void> {
  const file = path.join(data, "postmaster.pid");
  const [pid] = (await readFile(file, "utf8").catch(() => "")).split("\n", 1);
  if (!commandOf(Number(pid))?.includes(data)) await rm(file, { force: true });
}

function placeOf(dataDir: string, home: PostgresHome) {
  return { cwd: home.folder, pidFile: path.join(dataDir, "postgres.pid") };
}

function settingsOf(port: number, extra: Record<string, string> = {}): string[] {
  const settings = {
    listen_addresses: "127.0.0.1",
    port: String(port),
    // No socket files: their path would be too long below a deep DATA_DIR, and they are not used.
    unix_socket_directories: "",
    max_connections: "200",
    shared_buffers: "256MB",
    synchronous_commit: "on",
    password_encryption: "scram-sha-256",
    timezone: "UTC",
    log_timezone: "UTC",
    ...extra,
  };
  return Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
}
