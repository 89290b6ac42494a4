import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import pRetry, { AbortError } from "p-retry";
import type { Progress } from "../../process/index.ts";
import { serverEnvironment } from "./child-environment.ts";
import { excerpt, openLog, readLog } from "./log-file.ts";
import { findByCommand, isOurs, type StopStep, stopProcesses } from "./processes.ts";

/** The definition of an embedded server: how to run, identify, check and stop it. */
export interface ServerDefinition {
  name: string;
  file: string;
  args: readonly string[];
  /** A part of the command line that is unique to this DATA_DIR's server. */
  marker: string;
  logFile: string;
  /** The working directory, which the server's user must be able to enter. */
  cwd: string;
  /** The user it runs as. Defaults to the current user. */
  uid?: number;
  gid?: number;
  /** Called before each start. */
  prepare?(): Promise<void>;
  /** Matches log output of a temporary failure to start. */
  passing?: RegExp;
  /** Resolves if this server responds; rejects until then. */
  probe(): Promise<void>;
  /** The timeout of a start, in milliseconds. */
  startTimeoutMs: number;
  stopSteps: readonly StopStep[];
}

/** A server that responds. `died` resolves when its process has ended for any reason. */
export interface LiveServer {
  readonly pid: number;
  readonly died: Promise<void>;
  alive(): boolean;
}

/** Thrown if a server does not start. `output` is its log since the start. */
export class ServerStartError extends Error {
  readonly output: string;

  constructor(message: string, output: string, cause?: unknown) {
    super(message, { cause });
    this.name = "ServerStartError";
    this.output = output;
  }

  /** Whether another process took one of its ports before the start. */
  get portTaken(): boolean {
    return /address already in use|could not bind|only one usage of each socket address/i.test(this.output);
  }
}

/** The time for which temporary failures are retried, in milliseconds. */
const TEMPORARY_FAILURE_TIMEOUT_MS = 10_000;
/** The maximum number of ports tried. */
const MAX_PORT_ATTEMPTS = 5;

/**
 * Starts a server and waits until it responds.
 *
 * The server has its own process group, so that Ctrl-C reaches only the service, which stops its servers last.
 *
 * @throws ServerStartError if it ends, does not respond in time (then it is stopped), or `signal` aborts
 */
export async function launch(server: ServerDefinition, signal?: AbortSignal): Promise<LiveServer> {
  const deadline = Date.now() + TEMPORARY_FAILURE_TIMEOUT_MS;
  for (;;) {
    try {
      await server.prepare?.();
      return await launchOnce(server, signal);
    } catch (error) {
      const passing = error instanceof ServerStartError && server.passing?.test(error.output);
      if (!passing || signal?.aborted || Date.now() > deadline) throw error;
      await sleep(200);
    }
  }
}

async function launchOnce(server: ServerDefinition, signal?: AbortSignal): Promise<LiveServer> {
  const log = await openLog(server.logFile);
  const { uid, gid, cwd } = server;
  const child = spawn(server.file, server.args, {
    detached: true,
    windowsHide: true,
    stdio: ["ignore", log.handle.fd, log.handle.fd],
    env: serverEnvironment(),
    cwd,
    ...(uid === undefined ? {} : { uid }),
    ...(gid === undefined ? {} : { gid }),
  });
  const live = ofChild(child);
  const refused = await spawned(child);
  await log.handle.close();
  if (refused !== null)
    throw new ServerStartError(`cannot run ${server.file}: ${refused.message}`, "", refused);
  // Otherwise a service that exits without stopping its servers would wait for them.
  child.unref();
  try {
    await answered(server, live, signal);
    return live;
  } catch (cause) {
    const ended = !live.alive();
    await stopProcesses(server.marker, server.stopSteps);
    const output = await readLog(server.logFile, log.offset);
    const what = ended ? "ended while starting" : "did not respond in time";
    const reason = output === "" ? (cause as Error).message : excerpt(output);
    throw new ServerStartError(`${server.name} ${what} (log: ${server.logFile}):\n${reason}`, output, cause);
  }
}

/**
 * Stops a server that an earlier service left running, for example because it was killed.
 *
 * @throws Error if it cannot be stopped
 */
export async function stopLeftOver(
  { name, marker, stopSteps }: Pick<ServerDefinition, "name" | "marker" | "stopSteps">,
  progress: Progress,
): Promise<void> {
  const pids = findByCommand(marker);
  if (pids.length === 0) return;
  progress(`stopping ${name} (pid ${pids.join(", ")}), left running by an earlier service`);
  await stopProcesses(marker, stopSteps);
}

/** Runs `start`, and again up to five times in total if another process takes a port that was free. */
export async function onFreePorts<T>(start: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start();
    } catch (error) {
      if (!(error instanceof ServerStartError && error.portTaken && attempt < MAX_PORT_ATTEMPTS)) throw error;
    }
  }
}

/** Polls until the server responds, with pauses of 25 to 250 ms. Stops immediately if its process has ended. */
async function answered(server: ServerDefinition, live: LiveServer, signal?: AbortSignal) {
  const attempt = async () => {
    if (!live.alive()) throw new AbortError(`${server.name} has ended`);
    await server.probe();
    // The server may have ended because another process, which now responds, has taken its port.
    if (!isOurs(live.pid, server.marker)) throw new Error(`${server.name} has ended`);
  };
  await pRetry(attempt, {
    retries: Number.POSITIVE_INFINITY,
    minTimeout: 25,
    factor: 1.3,
    maxTimeout: 250,
    maxRetryTime: server.startTimeoutMs,
    ...(signal === undefined ? {} : { signal }),
  });
}

/** Null if the program was started; otherwise the error. */
function spawned(child: ChildProcess): Promise<Error | null> {
  return new Promise((resolve) => {
    child.once("spawn", () => resolve(null));
    child.once("error", resolve);
  });
}

function ofChild(child: ChildProcess): LiveServer {
  let alive = true;
  const died = new Promise<void>((resolve) => {
    const end = () => {
      alive = false;
      resolve();
    };
    child.once("exit", end);
    child.once("error", end);
  });
  // Without a pid the program was not started; an "error" event follows.
  return { pid: child.pid ?? 0, died, alive: () => alive && child.pid !== undefined };
}
