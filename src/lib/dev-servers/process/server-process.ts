import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdir, open, readFile } from "node:fs/promises";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import pRetry from "p-retry";
import type { Progress } from "../../process/index.ts";
import type { Owner } from "./owner.ts";
import { commandOf, type StopStep, serverEnvironment, signalGroup, stopGroup } from "./processes.ts";
import { readState, writeState } from "./state-file.ts";

/** The definition of an embedded server: how to run, check and stop it. */
export interface ServerDefinition {
  name: string;
  file: string;
  args: readonly string[];
  /** The working directory, which the server's user must be able to enter. No other server has the same. */
  cwd: string;
  logFile: string;
  /** The file that names the server's process, by which the next service finds it. */
  pidFile: string;
  /** The user it runs as; null for the current user. */
  owner: Owner | null;
  /** Called before each start. */
  prepare?(): Promise<void>;
  /** Resolves if this server, the process group `group`, responds; rejects until then. */
  probe(group: number): Promise<void>;
  /** The timeout of a start, in milliseconds. */
  startTimeoutMs: number;
  stopSteps: readonly StopStep[];
}

/** Options of a start. */
export interface StartOptions {
  progress: Progress;
  /** Whether to restart the server if it ends unexpectedly. Defaults to false. */
  superviseRestart?: boolean;
  /** Aborts the start. */
  signal?: AbortSignal;
}

/** Controls a running server. */
export interface ServerControl {
  /** Changes with a restart. */
  readonly pid: number;
  /** Stops the server in order, or kills it after a while. Resolves when the server has ended. */
  stop(): Promise<void>;
  /** Sends SIGKILL without waiting, for fault tests. A supervised server restarts. */
  kill(): void;
  /** Restarts the server on the same ports. */
  restart(): Promise<void>;
}

/** The content of `pidFile`. */
interface PidRecord {
  pid: number;
  /** The arguments, which distinguish the server from a later process with the same pid. */
  args: string;
  /** The working directory, which distinguishes the server from that of a copied DATA_DIR. */
  cwd: string;
}

/** Thrown if a server does not start. `output` is its log since the start. */
class ServerStartError extends Error {
  readonly output: string;

  constructor(message: string, output: string, cause?: unknown) {
    super(message, { cause });
    this.name = "ServerStartError";
    this.output = output;
  }
}

/** Failures to start that pass: another process has just taken a port, or child processes of a killed PostgreSQL still exit. */
const PASSING = /address already in use|could not bind|pre-existing shared memory block/i;
/** Repeats a start for ten seconds. */
const PATIENCE = { retries: 50, minTimeout: 200, factor: 1 };
/** The interval between two probes, in milliseconds. */
const PROBE_INTERVAL_MS = 50;
/** The delay before a server that ended unexpectedly is restarted, in milliseconds. Doubles with each failure up to the maximum. */
const RESTART_DELAY_MS = { first: 1_000, max: 15_000 };
/** The lines of a log that usually contain the cause of a failure. */
const [HEAD_LINES, TAIL_LINES] = [3, 5];

/**
 * Starts a server, waits until it responds, and controls it from then on.
 *
 * @param define defines the server, with ports that are free; called again if another process takes one before the start
 * @throws Error with the server's log if it ends or does not respond in time, or if the signal aborts. No process is left
 */
export async function startServer(
  define: () => Promise<ServerDefinition>,
  { progress, superviseRestart = false, signal }: StartOptions,
): Promise<ServerControl> {
  let server!: ServerDefinition;
  let live!: Awaited<ReturnType<typeof launch>>;
  let stopping!: AbortController;
  let watching!: Promise<void>;
  let stopped: Promise<void> | undefined;

  async function start(next: typeof define, signal?: AbortSignal): Promise<void> {
    const attempt = async () => {
      server = await next();
      return launch(server, signal);
    };
    const isPassing = (error: Error) => error instanceof ServerStartError && PASSING.test(error.output);
    live = await pRetry(attempt, { ...PATIENCE, shouldRetry: ({ error }) => isPassing(error) });
    stopped = undefined;
    stopping = new AbortController();
    watching = watch(stopping.signal);
  }

  /** Restarts the server whenever it ends, until `stopping` aborts. */
  async function watch(stopping: AbortSignal): Promise<void> {
    const aborted = once(stopping, "abort");
    for (;;) {
      await Promise.race([live.ended, aborted]);
      if (stopping.aborted) return;
      progress(`${server.name} (pid ${live.pid}) ended unexpectedly; log: ${server.logFile}`);
      if (!superviseRestart || !(await revive(stopping))) return;
      progress(`${server.name} is running again (pid ${live.pid})`);
    }
  }

  /** Starts the server again until it responds. Returns false if `stopping` aborts. */
  async function revive(stopping: AbortSignal): Promise<boolean> {
    for (let delay = RESTART_DELAY_MS.first; ; delay = Math.min(delay * 2, RESTART_DELAY_MS.max)) {
      try {
        await sleep(delay, undefined, { signal: stopping });
        // A wrapper script can end before the program that it runs.
        await stopGroup(live.pid, server.stopSteps);
        live = await launch(server, stopping);
        return true;
      } catch (error) {
        if (stopping.aborted) return false;
        progress(`${server.name} failed to restart, retrying: ${(error as Error).message}`);
      }
    }
  }

  async function stopNow(): Promise<void> {
    stopping.abort();
    await watching;
    await stopGroup(live.pid, server.stopSteps);
  }

  async function stop(): Promise<void> {
    stopped ??= stopNow();
    await stopped;
  }

  await start(define, signal);
  return {
    get pid() {
      return live.pid;
    },
    stop,
    kill() {
      if (live.isAlive()) signalGroup(live.pid, "SIGKILL");
    },
    async restart() {
      await stop();
      await start(async () => server);
    },
  };
}

/**
 * Starts a server and waits until it responds.
 *
 * The server has its own process group, so that Ctrl-C reaches only the service, which stops its servers last.
 */
async function launch(server: ServerDefinition, signal?: AbortSignal) {
  const { name, file, args, cwd, owner, logFile, pidFile } = server;
  signal?.throwIfAborted();
  await server.prepare?.();
  await mkdir(path.dirname(logFile), { recursive: true, mode: 0o700 });
  const log = await open(logFile, "a", 0o600);
  const { size } = await log.stat();
  const child = spawn(file, args, {
    detached: true,
    stdio: ["ignore", log.fd, log.fd],
    env: serverEnvironment(),
    cwd,
    ...owner,
  });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const spawned = once(child, "spawn");
  await log.close();
  await spawned.catch((cause: Error) => {
    throw new ServerStartError(`cannot run ${file}: ${cause.message}`, "", cause);
  });
  // Otherwise a service that exits without stopping its servers would wait for them.
  child.unref();
  const live = {
    pid: child.pid as number,
    /** Resolves when the process has ended for any reason. */
    ended,
    isAlive: () => child.exitCode === null && child.signalCode === null,
  };
  try {
    await writeState(pidFile, { pid: live.pid, args: args.join(" "), cwd } satisfies PidRecord);
    for (const deadline = Date.now() + server.startTimeoutMs; ; ) {
      const failure = await server.probe(live.pid).then(
        () => null,
        (error: Error) => error,
      );
      signal?.throwIfAborted();
      if (failure === null) return live;
      if (!live.isAlive() || Date.now() > deadline) throw failure;
      await sleep(PROBE_INTERVAL_MS, undefined, signal && { signal });
    }
  } catch (cause) {
    const hasEnded = !live.isAlive();
    await stopGroup(live.pid, server.stopSteps);
    signal?.throwIfAborted();
    const output = (await readFile(logFile)).subarray(size).toString().trim();
    const what = hasEnded ? "ended while starting" : "did not respond in time";
    const reason = (hasEnded && excerpt(output)) || (cause as Error).message;
    throw new ServerStartError(`${name} ${what} (log: ${logFile}):\n${reason}`, output, cause);
  }
}

/** The pid of the server that an earlier service, or this one, has started in `cwd`; null if it does not run. */
export async function findServer({
  pidFile,
  cwd,
}: Pick<ServerDefinition, "pidFile" | "cwd">): Promise<number | null> {
  const record = await readState<PidRecord>(pidFile);
  if (record.pid === undefined || record.args === undefined || record.cwd !== cwd) return null;
  return commandOf(record.pid)?.includes(record.args) ? record.pid : null;
}

/**
 * Stops a server that an earlier service left running, for example because it was killed.
 *
 * @throws Error if it cannot be stopped
 */
export async function stopLeftOver(
  server: Pick<ServerDefinition, "name" | "pidFile" | "cwd" | "stopSteps">,
  progress: Progress,
): Promise<void> {
  const pid = await findServer(server);
  if (pid === null) return;
  progress(`stopping ${server.name} (pid ${pid}), left running by an earlier service`);
  await stopGroup(pid, server.stopSteps);
}

/** The first and last lines of a log. */
export function excerpt(log: string): string {
  const lines = log.split("\n");
  if (lines.length <= HEAD_LINES + TAIL_LINES) return log;
  return [...lines.slice(0, HEAD_LINES), "...", ...lines.slice(-TAIL_LINES)].join("\n");
}
