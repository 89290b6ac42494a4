import { setTimeout as sleep } from "node:timers/promises";
import pRetry from "p-retry";
import type { Progress } from "../../process/index.ts";
import { isOurs, stopProcesses } from "./processes.ts";
import { type LiveServer, launch, type ServerDefinition, ServerStartError } from "./server-process.ts";

/** Controls a running server. */
export interface ServerControl {
  /** Changes with a restart. */
  readonly pid: number;
  /** Stops the server and waits for its end. Has no effect if it has already ended. */
  stop(): Promise<void>;
  /** Sends SIGKILL without waiting, to simulate a fault. A supervised server restarts. */
  kill(): void;
  /** Restarts the server on the same ports. Rejects if it does not come up. */
  restart(): Promise<void>;
}

/** The delay before a server that ended unexpectedly is restarted, in milliseconds. */
const RESTART_DELAY_MS = 1000;

/**
 * Controls a running server. With `revive`, restarts it after an unexpected end, and retries until it is up or `stop`
 * is called. Without, only reports the end.
 */
export function supervise(
  server: ServerDefinition,
  first: LiveServer,
  options: { progress: Progress; revive: boolean },
): ServerControl {
  const { progress } = options;
  let live = first;
  let stopped = false;
  let reviving = new AbortController();
  let turn: Promise<unknown> = Promise.resolve();

  /** Serializes changes, so that an automatic and a manual restart do not both start a server. */
  function inTurn(change: () => Promise<void>): Promise<void> {
    const next = turn.then(change);
    turn = next.catch(() => {});
    return next;
  }

  async function start(signal?: AbortSignal): Promise<void> {
    // Callers know its ports, so wait if another process uses one temporarily.
    const live = await pRetry(() => launch(server, signal), {
      retries: 10,
      minTimeout: 200,
      factor: 1,
      shouldRetry: ({ error }) => error instanceof ServerStartError && error.portTaken,
      ...(signal === undefined ? {} : { signal }),
    });
    watch(live);
  }

  async function end(): Promise<void> {
    await stopProcesses(server.marker, server.stopSteps);
  }

  function watch(next: LiveServer): void {
    live = next;
    void next.died.then(() => {
      if (stopped || live !== next) return;
      progress(`${server.name} (pid ${next.pid}) ended unexpectedly; log: ${server.logFile}`);
      if (options.revive) void revive(reviving.signal);
    });
  }

  async function revive(signal: AbortSignal): Promise<void> {
    try {
      await sleep(RESTART_DELAY_MS, undefined, { signal });
      await inTurn(async () => {
        if (live.alive()) return;
        // A wrapper script can end before the program that it runs.
        await end();
        await pRetry(() => start(signal), {
          retries: Number.POSITIVE_INFINITY,
          minTimeout: RESTART_DELAY_MS,
          maxTimeout: 15_000,
          signal,
          onFailedAttempt: ({ error }) =>
            progress(`${server.name} failed to restart, retrying: ${error.message}`),
        });
        progress(`${server.name} is running again (pid ${live.pid})`);
      });
    } catch (error) {
      if (!signal.aborted) progress(`${server.name} was not started again: ${(error as Error).message}`);
    }
  }

  watch(first);
  return {
    get pid() {
      return live.pid;
    },
    stop() {
      stopped = true;
      reviving.abort();
      return inTurn(() => {
        // A restart in progress has reset it.
        stopped = true;
        return end();
      });
    },
    kill() {
      if (live.alive() && isOurs(live.pid, server.marker)) process.kill(live.pid, "SIGKILL");
    },
    restart() {
      // The manual restart replaces the automatic one.
      reviving.abort();
      return inTurn(async () => {
        stopped = true;
        await end();
        reviving = new AbortController();
        stopped = false;
        await start();
      });
    },
  };
}

/** Runs the last steps of a start. If they fail, stops the server and throws their error. */
export async function finishStart(control: ServerControl, steps: () => Promise<void>): Promise<void> {
  try {
    await steps();
  } catch (error) {
    await control.stop();
    throw error;
  }
}

/** A server's control combined with its addresses. `pid` stays current. */
export function withAddresses<T extends object>(control: ServerControl, addresses: T): ServerControl & T {
  return {
    ...addresses,
    get pid() {
      return control.pid;
    },
    stop: control.stop,
    kill: control.kill,
    restart: control.restart,
  };
}
