import { type ChildProcess, spawn } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import pRetry, { AbortError } from "p-retry";
import type { Progress } from "../../process/progress.ts";
import { serverEnvironment } from "./child-environment.ts";
import { excerpt, openLog, readLog } from "./log-file.ts";
import { commandOf, isOurs, type StopStep, stopProcess } from "./processes.ts";

/** How one of our servers is run, told from others, asked whether it is up, and stopped. */
export interface ServerDefinition {
  name: string;
  file: string;
  args: readonly string[];
  /** The part of the command line that only this DATA_DIR's server has. */
  marker: string;
  logFile: string;
  /** Where it runs; it must be able to enter it. */
  cwd: string;
  /** Whom it runs as; absent: as we do. */
  uid?: number;
  gid?: number;
  /** What must be done just before each start. */
  prepare?(): Promise<void>;
  /** What it logs when it cannot start now but may in a moment. */
  passing?: RegExp;
  /** Resolves when this very server answers, and rejects while it does not (yet). */
  probe(pid: number): Promise<void>;
  /** How long it may take to answer, in milliseconds. */
  startTimeoutMs: number;
  stopSteps: readonly StopStep[];
}

/** A server that answers. `died` resolves when it has ended, for whatever reason. */
export interface LiveServer {
  readonly pid: number;
  readonly died: Promise<void>;
  alive(): boolean;
}

/** A server did not come up. `output` is what it logged meanwhile. */
export class ServerStartError extends Error {
  readonly output: string;

  constructor(message: string, output: string, cause?: unknown) {
    super(message, { cause });
    this.name = "ServerStartError";
    this.output = output;
  }

  /** Somebody else got one of its ports between our look and its start. */
  get portTaken(): boolean {
    return /address already in use|could not bind|only one usage of each socket address/i.test(this.output);
  }
}

const ADOPT_TIMEOUT_MS = 5_000;
const PASSING_MS = 10_000;
const PORT_ATTEMPTS = 5;
const POLL_MS = process.platform === "linux" ? 250 : 1000;

/**
 * Starts a server and waits until it answers.
 *
 * It gets a process group of its own, so that Ctrl-C reaches the service alone, which stops its servers last.
 *
 * @throws ServerStartError when it ends, or does not answer in time (it is stopped then), or `signal` aborts.
 */
export async function launch(server: ServerDefinition, signal?: AbortSignal): Promise<LiveServer> {
  const deadline = Date.now() + PASSING_MS;
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
  // Without this a service that ends without stopping its servers would wait for them instead.
  child.unref();
  try {
    await answered(server, live, server.startTimeoutMs, signal);
    return live;
  } catch (cause) {
    const ended = !live.alive();
    if (!ended) await stopProcess(live.pid, server.marker, server.stopSteps);
    const output = await readLog(server.logFile, log.offset);
    const what = ended ? "ended while starting" : "did not answer";
    const reason = output === "" ? (cause as Error).message : excerpt(output);
    throw new ServerStartError(`${server.name} ${what} (log: ${server.logFile}):\n${reason}`, output, cause);
  }
}

/**
 * Takes over a server that a killed service left running when it is just what we would start, and answers within
 * 5 s; else stops it and returns null.
 *
 * @throws Error when it cannot be stopped.
 */
export async function adoptOrStop(
  server: ServerDefinition,
  pid: number,
  progress: Progress,
): Promise<{ server: ServerDefinition; live: LiveServer } | null> {
  const asWanted = commandOf(pid) === [server.file, ...server.args].join(" ");
  const live = ofPid(pid, server.marker);
  if (asWanted) {
    try {
      await answered(server, live, ADOPT_TIMEOUT_MS);
      progress(`taking over ${server.name} (pid ${pid}), left running by an earlier service`);
      return { server, live };
    } catch {
      // Stopped below, like one with other ports or settings.
    }
  }
  progress(
    `stopping ${server.name} (pid ${pid}), left by an earlier service ${asWanted ? "and silent" : "with other settings"}`,
  );
  await stopProcess(pid, server.marker, server.stopSteps);
  return null;
}

/** Runs `start`, again (at most five times in all) when somebody else got a port it had found free. */
export async function onFreePorts<T>(start: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await start();
    } catch (error) {
      if (!(error instanceof ServerStartError && error.portTaken && attempt < PORT_ATTEMPTS)) throw error;
    }
  }
}

/** Asks until it answers, with pauses of 25 to 250 ms; gives up at once when it has ended. */
async function answered(server: ServerDefinition, live: LiveServer, timeoutMs: number, signal?: AbortSignal) {
  const attempt = async () => {
    if (!live.alive()) throw new AbortError(`${server.name} has ended`);
    await server.probe(live.pid);
    // It may have ended for want of its port, and what answered there be what has it.
    if (!isOurs(live.pid, server.marker)) throw new Error(`${server.name} has ended`);
  };
  await pRetry(attempt, {
    retries: Number.POSITIVE_INFINITY,
    minTimeout: 25,
    factor: 1.3,
    maxTimeout: 250,
    maxRetryTime: timeoutMs,
    ...(signal === undefined ? {} : { signal }),
  });
}

/** Null when the program was started, else why not. */
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
  // Without a pid it was not started at all; "error" follows.
  return { pid: child.pid ?? 0, died, alive: () => alive && child.pid !== undefined };
}

/** No event tells of the end of somebody else's child, so this one is looked at now and then. */
function ofPid(pid: number, marker: string): LiveServer {
  const { promise: died, resolve } = Promise.withResolvers<void>();
  const timer = setInterval(() => {
    if (isOurs(pid, marker)) return;
    clearInterval(timer);
    resolve();
  }, POLL_MS);
  timer.unref();
  return { pid, died, alive: () => isOurs(pid, marker) };
}
