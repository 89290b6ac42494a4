import { setTimeout as sleep } from "node:timers/promises";
import pRetry from "p-retry";
import type { Progress } from "../../process/progress.ts";
import { isOurs, stopProcess } from "./processes.ts";
import { type LiveServer, launch, type ServerDefinition, ServerStartError } from "./server-process.ts";

/** A running server under our control. */
export interface ServerControl {
  /** Changes when it is started again. */
  readonly pid: number;
  /** Ends it cleanly and waits for its end; harmless when it has ended already. */
  stop(): Promise<void>;
  /** SIGKILL, without waiting: a fault, so a supervised server comes back. */
  kill(): void;
  /** Starts it again on the same ports; stops it first when it runs. Rejects when it does not come up. */
  restart(): Promise<void>;
}

/** How long a server stays down after an unasked end before it is started again, in milliseconds. */
const REVIVE_AFTER_MS = 1000;

/**
 * Controls a running server. With `revive`, an end nobody asked for is followed by a new start, tried again
 * until it works or `stop` is called; without, it is only told.
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

  /** One change at a time, so that a revival and a `restart` do not both start one. */
  function inTurn(change: () => Promise<void>): Promise<void> {
    const next = turn.then(change);
    turn = next.catch(() => {});
    return next;
  }

  async function start(signal?: AbortSignal): Promise<void> {
    // Its ports stay what callers know, so a port somebody else has for a moment is waited for.
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
    await stopProcess(live.pid, server.marker, server.stopSteps);
  }

  function watch(next: LiveServer): void {
    live = next;
    void next.died.then(() => {
      if (stopped || live !== next) return;
      progress(`${server.name} (pid ${next.pid}) ended unasked; its log is ${server.logFile}`);
      if (options.revive) void revive(reviving.signal);
    });
  }

  async function revive(signal: AbortSignal): Promise<void> {
    try {
      await sleep(REVIVE_AFTER_MS, undefined, { signal });
      await inTurn(async () => {
        if (live.alive()) return;
        await pRetry(() => start(signal), {
          retries: Number.POSITIVE_INFINITY,
          minTimeout: REVIVE_AFTER_MS,
          maxTimeout: 15_000,
          signal,
          onFailedAttempt: ({ error }) =>
            progress(`${server.name} does not start again yet: ${error.message}`),
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
        // A restart that was under way has taken it back.
        stopped = true;
        return end();
      });
    },
    kill() {
      if (live.alive() && isOurs(live.pid, server.marker)) process.kill(live.pid, "SIGKILL");
    },
    restart() {
      // What the revival would do is done here and now.
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

/** A server's control with its addresses beside it; `pid` stays live. */
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
