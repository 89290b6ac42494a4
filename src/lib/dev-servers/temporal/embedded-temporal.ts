import { mkdir } from "node:fs/promises";
import path from "node:path";
import { Connection } from "@temporalio/client";
import { choosePort } from "../process/ports.ts";
import { listensOn, type StopStep } from "../process/processes.ts";
import {
  type ServerControl,
  type StartOptions,
  startServer,
  stopLeftOver,
} from "../process/server-process.ts";
import { ensureDataDir, readState, writeState } from "../process/state-file.ts";
import { findTemporalCli } from "./temporal-cli.ts";

/** A running embedded Temporal server with its UI. */
export interface EmbeddedTemporal extends ServerControl {
  /** `127.0.0.1:port` of its gRPC API. */
  address: string;
  uiUrl: string;
}

/** Options of `startEmbeddedTemporal`. */
export interface EmbeddedTemporalOptions extends StartOptions {
  dataDir: string;
  /** The preferred ports. Default to 7233 and 8233. If they are taken, free ones are chosen and kept over restarts. */
  port?: number;
  uiPort?: number;
  /** The namespace, created at the start. Defaults to "default". */
  namespace?: string;
  /** Custom search attributes to register, with their types. */
  searchAttributes?: Record<string, "KeywordList" | "Keyword" | "Int" | "Text">;
  /** Dynamic configuration: each value as JSON. */
  dynamicConfig?: Record<string, string>;
  /** SQLite pragmas of the state file, over the server's defaults. Tests use them for speed instead of durability. */
  sqlitePragmas?: Record<string, string>;
}

/** The content of `DATA_DIR/temporal/server.json`, for later starts. */
interface TemporalRecord {
  ports: { grpc: number; ui: number };
}

/** Relative to the server's working directory: SQLite, to which Temporal passes it within a URI, could take the path for another. */
const STATE_FILE = "temporal.db";
/** The timeout of a start, in milliseconds. */
const START_TIMEOUT_MS = 60_000;
const STOP_STEPS: readonly StopStep[] = [
  { signal: "SIGTERM", waitMs: 10_000 },
  { signal: "SIGKILL", waitMs: 5_000 },
];

/**
 * Starts the Temporal server of this DATA_DIR on 127.0.0.1, with its state in a file there. Downloads the CLI if
 * there is none. First stops a server that a killed service left running. Only one caller per DATA_DIR at a time
 * (`lockDataDir`).
 *
 * @throws Error with the remedy: no CLI, or the end of the server's log; or if `signal` aborts
 */
export async function startEmbeddedTemporal(options: EmbeddedTemporalOptions): Promise<EmbeddedTemporal> {
  const { progress, namespace = "default", searchAttributes = {}, port = 7233, uiPort = 8233 } = options;
  const dataDir = await ensureDataDir(options.dataDir);
  const folder = path.join(dataDir, "temporal");
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const place = { cwd: folder, pidFile: path.join(dataDir, "temporal.pid") };
  const identity = { ...place, name: "Temporal", stopSteps: STOP_STEPS };
  await stopLeftOver(identity, progress);
  const file = await findTemporalCli(dataDir, progress, options.signal);
  const recordFile = path.join(folder, "server.json");
  const { ports: kept } = await readState<TemporalRecord>(recordFile);

  let ports = { grpc: port, ui: uiPort };
  const control = await startServer(async () => {
    const grpc = await choosePort(kept ? [kept.grpc, port] : [port]);
    const ui = await choosePort(kept ? [kept.ui, uiPort] : [uiPort]);
    ports = { grpc, ui };
    await writeState(recordFile, { ports } satisfies TemporalRecord);
    return {
      ...identity,
      file,
      owner: null,
      args: argumentsOf(ports, options),
      logFile: path.join(dataDir, "logs", "temporal.log"),
      async probe(group) {
        if (!listensOn(group, grpc) || !listensOn(group, ui)) throw new Error("it does not listen yet");
        await assertTemporalServes(`127.0.0.1:${grpc}`, namespace, Object.keys(searchAttributes));
      },
      startTimeoutMs: START_TIMEOUT_MS,
    };
  }, options);
  const address = `127.0.0.1:${ports.grpc}`;
  const uiUrl = `http://127.0.0.1:${ports.ui}`;
  progress(`Temporal is running on ${address} (pid ${control.pid}), its UI on ${uiUrl}`);
  return Object.assign(control, { address, uiUrl });
}

function argumentsOf(ports: TemporalRecord["ports"], options: EmbeddedTemporalOptions): string[] {
  const { namespace = "default", searchAttributes = {}, dynamicConfig = {}, sqlitePragmas = {} } = options;
  const repeated = (name: string, values: Record<string, string>) =>
    Object.entries(values).flatMap(([key, value]) => [name, `${key}=${value}`]);
  return [
    ...["server", "start-dev", "--db-filename", STATE_FILE, "--ip", "127.0.0.1", "--log-level", "warn"],
    ...["--port", String(ports.grpc), "--ui-port", String(ports.ui), "--namespace", namespace],
    ...repeated("--search-attribute", searchAttributes),
    ...repeated("--dynamic-config-value", dynamicConfig),
    ...repeated("--sqlite-pragma", sqlitePragmas),
  ];
}

/**
 * Resolves if the Temporal server at `address` responds, knows `namespace`, and has the search attributes; otherwise
 * rejects within about 5 s.
 */
export async function assertTemporalServes(
  address: string,
  namespace: string,
  searchAttributes: readonly string[],
): Promise<void> {
  const connection = await Connection.connect({
    address,
    tls: false,
    // Without it, gRPC of Node applies `https_proxy` and `http_proxy`, also to 127.0.0.1.
    channelArgs: { "grpc.enable_http_proxy": 0 },
    connectTimeout: 2_000,
  });
  try {
    await connection.withDeadline(Date.now() + 3_000, async () => {
      await connection.workflowService.describeNamespace({ namespace });
      if (searchAttributes.length === 0) return;
      const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace });
      const absent = searchAttributes.filter((name) => !(name in customAttributes));
      if (absent.length > 0) throw new Error(`search attributes not registered yet: ${absent.join(", ")}`);
    });
  } finally {
    await connection.close().catch(() => {});
  }
}
