import { chmod, mkdir } from "node:fs/promises";
import path from "node:path";
import type { Progress } from "../../process/progress.ts";
import { listensOn } from "../process/listening.ts";
import { choosePort, portWishes } from "../process/ports.ts";
import { findByCommand, type StopStep, stopProcess } from "../process/processes.ts";
import { adoptOrStop, launch, onFreePorts, type ServerDefinition } from "../process/server-process.ts";
import { ensureDataDir, readState, writeState } from "../process/state-file.ts";
import { supervise, withAddresses } from "../process/supervise.ts";
import { cacheFolder } from "./cache-folder.ts";
import { findTemporalCli } from "./temporal-cli.ts";
import { assertTemporalServes } from "./temporal-client.ts";

/** A running Temporal server of ours, with its UI. */
export interface EmbeddedTemporal {
  /** `127.0.0.1:port` of its gRPC. */
  address: string;
  uiUrl: string;
  /** Changes when it is started again. */
  pid: number;
  /** SIGTERM, and SIGKILL after 10 s; resolves when it has ended, at once when it had. */
  stop(): Promise<void>;
  /** SIGKILL, for fault tests: does not wait, and a supervised one comes back. */
  kill(): void;
  /** Starts it again on the same ports, after a death or a `stop`. */
  restart(): Promise<void>;
}

/** What `startEmbeddedTemporal` takes. */
export interface EmbeddedTemporalOptions {
  dataDir: string;
  progress: Progress;
  /** The ports wished for (7233 and 8233): free ones when they are taken, and then those over restarts. */
  port?: number;
  uiPort?: number;
  /** "default" unless given; made at the start. */
  namespace?: string;
  /** Start it again by itself when it ends unasked. */
  superviseRestart?: boolean;
  /** Custom search attributes to register, with their types. */
  searchAttributes?: Record<string, "KeywordList" | "Keyword" | "Int" | "Text">;
  /** Dynamic configuration: each value as JSON. */
  dynamicConfig?: Record<string, string>;
}

/** `DATA_DIR/temporal/server.json`: what a later start must know. */
interface TemporalRecord {
  pid: number;
  /** What the caller asked for, and what it became. */
  asked: Ports;
  ports: Ports;
}

interface Ports {
  grpc: number;
  ui: number;
}

const START_TIMEOUT_MS = 60_000;
const STOP_STEPS: readonly StopStep[] = [
  { signal: "SIGTERM", waitMs: 10_000 },
  { signal: "SIGKILL", waitMs: 5_000 },
];

/**
 * Starts this DATA_DIR's own Temporal server on 127.0.0.1, its state in a file there, downloading the CLI when
 * there is none; one a killed service left running is taken over. Only one caller a DATA_DIR at a time
 * (`lockDataDir`).
 *
 * @throws Error saying what to do: no CLI, or the end of its log.
 */
export async function startEmbeddedTemporal(options: EmbeddedTemporalOptions): Promise<EmbeddedTemporal> {
  const { progress, namespace = "default", searchAttributes = {} } = options;
  const asked: Ports = { grpc: options.port ?? 7233, ui: options.uiPort ?? 8233 };
  const dataDir = await ensureDataDir(options.dataDir);
  const folder = path.join(dataDir, "temporal");
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const recordFile = path.join(folder, "server.json");
  const stateFile = path.join(folder, "temporal.db");
  const marker = ` server start-dev --db-filename ${stateFile} --ip `;
  const record = await readState<TemporalRecord>(recordFile);
  const wishes = wishesOf(asked, record);
  const cli = await findTemporalCli({ cacheDir: await cacheFolder(dataDir), progress });

  const serverAt = (ports: Ports): ServerDefinition => ({
    name: "Temporal",
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
    marker,
    logFile: path.join(dataDir, "logs", "temporal.log"),
    cwd: folder,
    async probe(pid) {
      if (!listensOn(pid, ports.grpc) || !listensOn(pid, ports.ui)) throw new Error("it does not listen yet");
      await assertTemporalServes(`127.0.0.1:${ports.grpc}`, namespace, Object.keys(searchAttributes));
    },
    startTimeoutMs: START_TIMEOUT_MS,
    stopSteps: STOP_STEPS,
  });

  const expected: Ports = { grpc: wishes.grpc[0] ?? asked.grpc, ui: wishes.ui[0] ?? asked.ui };
  const [leftOver, ...more] = findLeftOvers(record?.pid, marker);
  for (const pid of more) await stopProcess(pid, marker, STOP_STEPS);
  const adopted = leftOver && (await adoptOrStop(serverAt(expected), leftOver, progress));
  const { ports, server, live } = adopted
    ? { ...adopted, ports: expected }
    : await onFreePorts(async () => {
        const grpc = await choosePort(wishes.grpc);
        const ports = { grpc, ui: await choosePort(wishes.ui, [grpc]) };
        const server = serverAt(ports);
        return { ports, server, live: await launch(server) };
      });

  await chmod(stateFile, 0o600);
  await writeState(recordFile, { pid: live.pid, asked, ports } satisfies TemporalRecord);
  const address = `127.0.0.1:${ports.grpc}`;
  const uiUrl = `http://127.0.0.1:${ports.ui}`;
  progress(`Temporal is running on ${address} (pid ${live.pid}), its UI on ${uiUrl}`);
  const control = supervise(server, live, { progress, revive: options.superviseRestart ?? false });
  return withAddresses(control, { address, uiUrl });
}

function argumentsOf(ports: Ports, options: EmbeddedTemporalOptions): string[] {
  const { namespace = "default", searchAttributes = {}, dynamicConfig = {} } = options;
  return [
    ...["--port", String(ports.grpc), "--ui-port", String(ports.ui), "--namespace", namespace],
    ...Object.entries(searchAttributes).flatMap(([name, type]) => ["--search-attribute", `${name}=${type}`]),
    ...Object.entries(dynamicConfig).flatMap(([key, value]) => ["--dynamic-config-value", `${key}=${value}`]),
    ...["--log-level", "warn"],
  ];
}

function wishesOf(asked: Ports, record: Partial<TemporalRecord> | null): { grpc: number[]; ui: number[] } {
  const kept = (name: keyof Ports) =>
    record?.ports && record.asked ? { port: record.ports[name], asked: record.asked[name] } : undefined;
  return { grpc: portWishes(asked.grpc, kept("grpc")), ui: portWishes(asked.ui, kept("ui")) };
}

/**
 * The servers that run on our state file, the recorded one first. Not only that one is looked for: a service may
 * have been killed before it wrote the record, or after its server was started again.
 */
function findLeftOvers(recorded: number | undefined, marker: string): number[] {
  const pids = findByCommand(marker).map(({ pid }) => pid);
  return pids.sort((one, other) => Number(other === recorded) - Number(one === recorded));
}
