import { realpath } from "node:fs/promises";
import path from "node:path";
import type { Progress } from "../../process/index.ts";
import { choosePort, portWishes } from "../process/ports.ts";
import { launch, onFreePorts, type ServerDefinition, stopLeftOver } from "../process/server-process.ts";
import { ensureDataDir } from "../process/state-file.ts";
import { finishStart, supervise, withAddresses } from "../process/supervise.ts";
import { findPostgresBinaries } from "./postgres-binaries.ts";
import { addressOf, assertServes, ensureServiceDatabase } from "./postgres-client.ts";
import { ensureCluster, ensureServiceLogin, findServiceLogin, hasCluster } from "./postgres-cluster.ts";
import {
  findPostgresHome,
  preparePostgresHome,
  readPostgresRecord,
  writePostgresRecord,
} from "./postgres-home.ts";
import { clearStalePidFile, findPostmaster, POSTGRES_STOP_STEPS, postmasterMarker } from "./postmaster.ts";

/** A running embedded PostgreSQL. */
export interface EmbeddedPostgres {
  /** The connection URL of the database `webhook` for its owner. Contains the password: do not log. */
  url: string;
  /** The same URL for the superuser. Not used by the service; tests create databases with it. */
  superuserUrl: string;
  port: number;
  /** Changes with a restart. */
  pid: number;
  /** Requests a fast shutdown. Resolves when the server has ended. */
  stop(): Promise<void>;
  /** Sends SIGKILL without waiting, for fault tests. A supervised server restarts. */
  kill(): void;
  /** Restarts the server on the same port. */
  restart(): Promise<void>;
}

/** Options of `startEmbeddedPostgres`. */
export interface EmbeddedPostgresOptions {
  dataDir: string;
  progress: Progress;
  /** The preferred port. Defaults to 5433. If it is taken, a free one is chosen and kept over restarts. */
  port?: number;
  /** Whether to restart the server if it ends unexpectedly. */
  superviseRestart?: boolean;
  /** Additional PostgreSQL settings, by name; they override the defaults. Visible to other users: no secrets. */
  settings?: Record<string, string>;
  /** Aborts the start. */
  signal?: AbortSignal;
}

const DATABASE = "webhook";
const DEFAULT_PORT = 5433;
/**
 * The timeout of a start, in milliseconds. Long, because recovery after a crash reads the log first. An exit is
 * detected immediately.
 */
const START_TIMEOUT_MS = 120_000;

/**
 * Starts the PostgreSQL of this DATA_DIR on 127.0.0.1; creates it at the first start. First stops a server that a
 * killed service left running. Only one caller per DATA_DIR at a time (`lockDataDir`).
 *
 * @throws Error with the remedy: programs missing, folder inaccessible, or the end of the server's log; or if
 *   `signal` aborts
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const { progress } = options;
  const asked = options.port ?? DEFAULT_PORT;
  const dataDir = await ensureDataDir(options.dataDir);
  const home = await preparePostgresHome(dataDir, progress);
  const binaries = await findPostgresBinaries(home.owner, progress);
  const wishes = portWishes(asked, await readPostgresRecord(dataDir));
  const identity = { name: "PostgreSQL", marker: postmasterMarker(home), stopSteps: POSTGRES_STOP_STEPS };
  await stopLeftOver(identity, progress);
  const superuser = await ensureCluster(dataDir, home, binaries, progress);
  const service = await ensureServiceLogin(dataDir);

  const serverAt = (port: number): ServerDefinition => ({
    ...identity,
    file: binaries.postgres,
    args: ["-D", home.data, ...settingsOf(port, options.settings)],
    logFile: path.join(dataDir, "logs", "postgres.log"),
    cwd: home.folder,
    ...home.owner,
    prepare: () => clearStalePidFile(home),
    probe: () => assertServes(addressOf(superuser, port, "postgres"), home.data),
    // After a SIGKILL its child processes take a moment to exit.
    passing: /pre-existing shared memory block|lock file "postmaster.pid" already exists/,
    startTimeoutMs: START_TIMEOUT_MS,
  });
  const { port, server, live } = await onFreePorts(async () => {
    const port = await choosePort(wishes);
    const server = serverAt(port);
    return { port, server, live: await launch(server, options.signal) };
  });

  const control = supervise(server, live, { progress, revive: options.superviseRestart ?? false });
  await finishStart(control, async () => {
    await writePostgresRecord(dataDir, { asked, port });
    await ensureServiceDatabase(addressOf(superuser, port, "postgres"), service, DATABASE);
  });
  progress(`PostgreSQL is running on 127.0.0.1:${port} (pid ${control.pid})`);
  return withAddresses(control, {
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
  const login = folder === null ? null : await findServiceLogin(folder);
  if (folder === null || login === null) return null;
  const home = await findPostgresHome(folder);
  const running = home === null ? null : await findPostmaster(home);
  return running === null ? null : addressOf(login, running.port, DATABASE);
}

/** Whether this DATA_DIR has an embedded database, running or not. Creates nothing. */
export async function hasPostgres(dataDir: string): Promise<boolean> {
  const folder = await realpath(dataDir).catch(() => null);
  const home = folder === null ? null : await findPostgresHome(folder);
  return home !== null && (await hasCluster(home));
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
