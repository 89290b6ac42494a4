import { chmod, mkdir } from "node:fs/promises";
import path from "node:path";
import type { Progress } from "../../process/index.ts";
import { listensOn } from "../process/listening.ts";
import { choosePort, portWishes } from "../process/ports.ts";
import { findByCommand, markerOf, type StopStep } from "../process/processes.ts";
import { launch, onFreePorts, type ServerDefinition, stopLeftOver } from "../process/server-process.ts";
import { ensureDataDir, readState, writeState } from "../process/state-file.ts";
import { finishStart, supervise, withAddresses } from "../process/supervise.ts";
import { findTemporalCli } from "./temporal-cli.ts";
import { assertTemporalServes } from "./temporal-client.ts";

/** A running embedded Temporal server with its UI. */
export interface EmbeddedTemporal {
  /** `127.0.0.1:port` of its gRPC API. */
  address: string;
  uiUrl: string;
  /** Changes with a restart. */
  pid: number;
  /** Sends SIGTERM, and SIGKILL after 10 s. Resolves when the server has ended. */
  stop(): Promise<void>;
  /** Sends SIGKILL without waiting, for fault tests. A supervised server restarts. */
  kill(): void;
  /** Restarts the server on the same ports. */
  restart(): Promise<void>;
}

/** Options of `startEmbeddedTemporal`. */
export interface EmbeddedTemporalOptions {
  dataDir: string;
  progress: Progress;
  /** The preferred ports. Default to 7233 and 8233. If they are taken, free ones are chosen and kept over restarts. */
  port?: number;
  uiPort?: number;
  /** The namespace, created at the start. Defaults to "default". */
  namespace?: string;
  /** Whether to restart the server if it ends unexpectedly. */
  superviseRestart?: boolean;
  /** Custom search attributes to register, with their types. */
  searchAttributes?: Record<string, "KeywordList" | "Keyword" | "Int" | "Text">;
  /** Dynamic configuration: each value as JSON. */
  dynamicConfig?: Record<string, string>;
  /** SQLite pragmas of the state file, over the server's defaults. Tests use them for speed instead of durability. */
  sqlitePragmas?: Record<string, string>;
  /** Aborts the start. */
  signal?: AbortSignal;
}

/** The content of `DATA_DIR/temporal/server.json`, for later starts. */
interface TemporalRecord {
  /** The requested ports, and the actual ones. */
  asked: Ports;
  ports: Ports;
}

interface Ports {
  grpc: number;
  ui: number;
}

/** The timeout of a start, in milliseconds. */
const START_TIMEOUT_MS = 60_000;
const STOP_STEPS: readonly StopStep[] = [
  { signal: "SIGTERM", waitMs: 10_000 },
  { signal: "SIGKILL", waitMs: 5_000 },
];

/**
 * Starts the Temporal server of this DATA_DIR on 127.0.0.1, with its state in a file there. Downloads the CLI if
 * there is none. First stops servers that a killed service left running. Only one caller per DATA_DIR at a time
 * (`lockDataDir`).
 *
 * @throws Error with the remedy: no CLI, or the end of the server's log; or if `signal` aborts
 */
export async function startEmbeddedTemporal(options: EmbeddedTemporalOptions): Promise<EmbeddedTemporal> {
  const { progress, namespace = "default", searchAttributes = {} } = options;
  const asked: Ports = { grpc: options.port ?? 7233, ui: options.uiPort ?? 8233 };
  const dataDir = await ensureDataDir(options.dataDir);
  const folder = path.join(dataDir, "temporal");
  assertUsable(folder);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const recordFile = path.join(folder, "server.json");
  const stateFile = path.join(folder, "temporal.db");
  // Without the program's path: the command line of a wrapper script differs from the file that was started.
  const marker = markerOf("server", "start-dev", "--db-filename", stateFile, "--ip");
  const identity = { name: "Temporal", marker, stopSteps: STOP_STEPS };
  await stopLeftOver(identity, progress);
  const wishes = wishesOf(asked, await readState<TemporalRecord>(recordFile));
  const cli = await findTemporalCli(dataDir, progress, options.signal);

  const serverAt = (ports: Ports): ServerDefinition => ({
    ...identity,
    file: cli,
    args: [
      "server",
      "start-dev",
      "--db-filename",
      stateFile,
      "--ip",
      "127.0.0.1",
      ...argumentsOf(ports, options),
    ],
    logFile: path.join(dataDir, "logs", "temporal.log"),
    cwd: folder,
    async probe() {
      const pids = findByCommand(marker);
      const listens = (port: number) => pids.some((pid) => listensOn(pid, port));
      if (!listens(ports.grpc) || !listens(ports.ui)) throw new Error("it does not listen yet");
      await assertTemporalServes(`127.0.0.1:${ports.grpc}`, namespace, Object.keys(searchAttributes));
    },
    startTimeoutMs: START_TIMEOUT_MS,
  });

  const { ports, server, live } = await onFreePorts(async () => {
    const grpc = await choosePort(wishes.grpc);
    const ports = { grpc, ui: await choosePort(wishes.ui, [grpc]) };
    const server = serverAt(ports);
    return { ports, server, live: await launch(server, options.signal) };
  });

  const control = supervise(server, live, { progress, revive: options.superviseRestart ?? false });
  await finishStart(control, async () => {
    await chmod(stateFile, 0o600);
    await writeState(recordFile, { asked, ports } satisfies TemporalRecord);
  });
  const address = `127.0.0.1:${ports.grpc}`;
  const uiUrl = `http://127.0.0.1:${ports.ui}`;
  progress(`Temporal is running on ${address} (pid ${control.pid}), its UI on ${uiUrl}`);
  return withAddresses(control, { address, uiUrl });
}

/** Throws if SQLite, to which Temporal passes the path within a URI, would open another file. */
function assertUsable(folder: string): void {
  const [part] = /[#?]|%[0-9a-f]{2}/i.exec(folder) ?? [];
  if (part === undefined) return;
  throw new Error(
    `the embedded Temporal cannot store its state in ${folder}, because the path contains ${part}; set DATA_DIR to a folder without #, ? and percent-encoding, or set TEMPORAL_ADDRESS`,
  );
}

function argumentsOf(ports: Ports, options: EmbeddedTemporalOptions): string[] {
  const { namespace = "default", searchAttributes = {}, dynamicConfig = {}, sqlitePragmas = {} } = options;
  return [
    ...["--port", String(ports.grpc), "--ui-port", String(ports.ui), "--namespace", namespace],
    ...Object.entries(searchAttributes).flatMap(([name, type]) => ["--search-attribute", `${name}=${type}`]),
    ...Object.entries(dynamicConfig).flatMap(([key, value]) => ["--dynamic-config-value", `${key}=${value}`]),
    ...Object.entries(sqlitePragmas).flatMap(([name, value]) => ["--sqlite-pragma", `${name}=${value}`]),
    ...["--log-level", "warn"],
  ];
}

function wishesOf(asked: Ports, record: Partial<TemporalRecord> | null): { grpc: number[]; ui: number[] } {
  const kept = (name: keyof Ports) =>
    record?.ports && record.asked ? { port: record.ports[name], asked: record.asked[name] } : undefined;
  return { grpc: portWishes(asked.grpc, kept("grpc")), ui: portWishes(asked.ui, kept("ui")) };
}
