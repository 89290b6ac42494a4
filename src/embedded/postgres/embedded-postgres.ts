import { realpath } from "node:fs/promises";
import path from "node:path";
import type { Progress } from "../../process/progress.ts";
import { choosePort, portWishes } from "../process/ports.ts";
import { adoptOrStop, launch, onFreePorts, type ServerDefinition } from "../process/server-process.ts";
import { ensureDataDir } from "../process/state-file.ts";
import { supervise, withAddresses } from "../process/supervise.ts";
import { findPostgresBinaries } from "./postgres-binaries.ts";
import { addressOf, assertServes, ensureServiceDatabase } from "./postgres-client.ts";
import { ensureCluster, ensureServiceLogin, findServiceLogin } from "./postgres-cluster.ts";
import {
  findPostgresHome,
  preparePostgresHome,
  readPostgresRecord,
  writePostgresRecord,
} from "./postgres-home.ts";
import { clearStalePidFile, findPostmaster, POSTGRES_STOP_STEPS, postmasterMarker } from "./postmaster.ts";

/** A running PostgreSQL of ours. */
export interface EmbeddedPostgres {
  /** Connection address of the database `webhook` for its owner, password included: not for logs. */
  url: string;
  /** The same for the superuser. The service never uses it; tests make databases with it. */
  superuserUrl: string;
  port: number;
  /** Changes when it is started again. */
  pid: number;
  /** Fast shutdown; resolves when it has ended, at once when it had. */
  stop(): Promise<void>;
  /** SIGKILL, for fault tests: does not wait, and a supervised one comes back. */
  kill(): void;
  /** Starts it again on the same port, after a death or a `stop`. */
  restart(): Promise<void>;
}

/** What `startEmbeddedPostgres` takes. */
export interface EmbeddedPostgresOptions {
  dataDir: string;
  progress: Progress;
  /** The port wished for (5433): a free one when it is taken, and then that one over restarts. */
  port?: number;
  /** Start it again by itself when it ends unasked. */
  superviseRestart?: boolean;
  /** Further settings of PostgreSQL, by name; they win over ours. They are visible to other users: no secrets. */
  settings?: Record<string, string>;
}

const DATABASE = "webhook";
const DEFAULT_PORT = 5433;
/** Long, because after a crash it first reads its log again; an end meanwhile is noticed at once. */
const START_TIMEOUT_MS = 120_000;

/**
 * Starts this DATA_DIR's own PostgreSQL on 127.0.0.1, made at the first start; one a killed service left
 * running is taken over. Only one caller a DATA_DIR at a time (`lockDataDir`).
 *
 * @throws Error saying what to do: programs missing, folder out of reach, or the end of its log.
 */
export async function startEmbeddedPostgres(options: EmbeddedPostgresOptions): Promise<EmbeddedPostgres> {
  const { progress } = options;
  const asked = options.port ?? DEFAULT_PORT;
  const dataDir = await ensureDataDir(options.dataDir);
  const home = await preparePostgresHome(dataDir, progress);
  const binaries = await findPostgresBinaries(home.owner, progress);
  const wishes = portWishes(asked, await readPostgresRecord(dataDir));
  const leftOver = await findPostmaster(home);
  const superuser = await ensureCluster(dataDir, home, binaries, progress);
  const service = await ensureServiceLogin(dataDir);

  const serverAt = (port: number): ServerDefinition => ({
    name: "PostgreSQL",
    file: binaries.postgres,
    args: ["-D", home.data, ...settingsOf(port, options.settings)],
    marker: postmasterMarker(home),
    logFile: path.join(dataDir, "logs", "postgres.log"),
    cwd: home.folder,
    ...home.owner,
    prepare: () => clearStalePidFile(home),
    probe: () => assertServes(addressOf(superuser, port, "postgres"), home.data),
    // After a SIGKILL its children take a moment to notice and go.
    passing: /pre-existing shared memory block|lock file "postmaster.pid" already exists/,
    startTimeoutMs: START_TIMEOUT_MS,
    stopSteps: POSTGRES_STOP_STEPS,
  });
  const adopted = leftOver && (await adoptOrStop(serverAt(wishes[0] ?? asked), leftOver.pid, progress));
  const { port, ...started } =
    adopted && leftOver
      ? { ...adopted, port: leftOver.port }
      : await onFreePorts(async () => {
          const port = await choosePort(wishes);
          const server = serverAt(port);
          return { server, live: await launch(server), port };
        });

  await writePostgresRecord(dataDir, { asked, port });
  await ensureServiceDatabase((database) => addressOf(superuser, port, database), service, DATABASE);
  progress(`PostgreSQL is running on 127.0.0.1:${port} (pid ${started.live.pid})`);
  const control = supervise(started.server, started.live, {
    progress,
    revive: options.superviseRestart ?? false,
  });
  return withAddresses(control, {
    url: addressOf(service, port, DATABASE),
    superuserUrl: addressOf(superuser, port, DATABASE),
    port,
  });
}

/**
 * Connection address of the running embedded database of this DATA_DIR, password included, or null when none
 * runs. Starts nothing.
 *
 * @throws Error when its files may not be read.
 */
export async function findRunningPostgres(dataDir: string): Promise<string | null> {
  const folder = await realpath(dataDir).catch(() => null);
  const login = folder === null ? null : await findServiceLogin(folder);
  if (folder === null || login === null) return null;
  const home = await findPostgresHome(folder);
  const running = home === null ? null : await findPostmaster(home);
  return running === null ? null : addressOf(login, running.port, DATABASE);
}

function settingsOf(port: number, extra: Record<string, string> = {}): string[] {
  const settings = {
    listen_addresses: "127.0.0.1",
    port: String(port),
    // No socket files: their path would be too long below a deep DATA_DIR, and nobody needs them.
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
