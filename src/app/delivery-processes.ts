import { type ChildProcess, fork } from "node:child_process";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { ScopeMetrics } from "@opentelemetry/sdk-metrics";
import type { Logger } from "pino";
import type { Snapshot } from "../metrics/index.ts";
import { EMBEDDED_ADDRESS } from "../temporal/index.ts";
import type { Delivery } from "./delivery.ts";
import { fitting } from "./small-memory.ts";

const PROGRAM = fileURLToPath(new URL("delivery-process.ts", import.meta.url));
/** A message of a delivery process to the process that started it. */
export type FromDelivery =
  | {
      /** Whether the process has begun to deliver. If its version is not the current one, it delivers and is not ready. */
      started: boolean;
      /** The reasons why the process is not ready; empty if it is. */
      report: string[];
    }
  | { /** The metrics of the process, on request. */ scopes: ScopeMetrics[] };
/** The request for the metrics of a delivery process. */
export const MEASURED = "measured";

/** The interval between reports, in milliseconds. */
export const REPORT_INTERVAL_MS = 1_000;
/** The delay before a process that ended is restarted, in milliseconds: doubled each time, up to the maximum. */
const RESTART_DELAY_MS = { min: 1_000, max: 30_000 };
/** The uptime after which the restart delay is reset to the minimum, in milliseconds. */
const MIN_HEALTHY_UPTIME_MS = 60_000;
/** The time without a report after which a process counts as unresponsive, in milliseconds. */
const REPORT_TIMEOUT_MS = 5 * REPORT_INTERVAL_MS;

/** Reported in the log and by `/readyz`. */
const ENDED = "a delivery process ended; restarting";
const NOT_STARTED = "a delivery process could not be started; retrying";
/** The timeout for the metrics of a process, in milliseconds; a process that misses it is left out. */
const SNAPSHOT_MS = 2_000;

/** The end of a process. */
interface End {
  pid: number | undefined;
  code: number | null;
  signal: string | null;
}

/** A place for a delivery process, with the state of its current process. */
interface Place {
  name: string;
  report: string[];
  reportedAt: number;
  child: ChildProcess | undefined;
  /** Receives the metrics of the process. */
  measured: (scopes: ScopeMetrics[]) => void;
}

/** Delivery in child processes. */
export interface DeliveryProcesses extends Delivery {
  /** The metrics of each process that answers. */
  snapshots(): Promise<Snapshot[]>;
}

/**
 * Delivers in child processes, and restarts the ones that end. Other processes can claim their deliveries after the lease.
 *
 * @param options.environment the complete environment of the processes, see `deliveryEnvironment`
 * @param options.stopMs the maximum time for completing requests in flight, in milliseconds
 * @param options.stopping must be aborted before `stop` is called
 */
export function startDeliveryProcesses(options: {
  count: number;
  environment: NodeJS.ProcessEnv;
  stopMs: number;
  stopping: AbortSignal;
  log: Logger;
}): DeliveryProcesses {
  const { count, environment, stopMs, stopping, log } = options;
  const places = Array.from(
    { length: count },
    (_, n): Place => ({
      name: `delivery-${n + 1}`,
      report: ["a delivery process is starting"],
      reportedAt: Number.NaN,
      child: undefined,
      measured: () => {},
    }),
  );
  const fit = fitting(count + 1);
  const { promise: firstStart, resolve: isStarted } = Promise.withResolvers<void>();

  async function keep(place: Place): Promise<void> {
    let restartMs = RESTART_DELAY_MS.min;
    while (!stopping.aborted) {
      const since = performance.now();
      const end = await run(place).catch((err: unknown) => ({ err }));
      if (stopping.aborted) return;
      const what = "err" in end ? NOT_STARTED : ENDED;
      Object.assign(place, { report: [what], reportedAt: Number.NaN, child: undefined });
      if (performance.now() - since > MIN_HEALTHY_UPTIME_MS) restartMs = RESTART_DELAY_MS.min;
      log.error({ ...end, restartMs }, what);
      await wait(restartMs, undefined, { signal: stopping }).catch(() => {});
      restartMs = Math.min(RESTART_DELAY_MS.max, 2 * restartMs);
    }
  }

  /** Resolves when the process has ended. Rejects if it could not be started, for example without memory. */
  async function run(place: Place): Promise<End> {
    const child = fork(PROGRAM, [String(count + 1), place.name], {
      // Histograms hold numbers that JSON has not.
      serialization: "advanced",
      env: { ...environment, ...fit?.environment },
      execArgv: [...process.execArgv, ...(fit?.arguments ?? [])],
    });
    place.child = child;
    child.on("message", (message: FromDelivery) => {
      if ("scopes" in message) {
        place.measured(message.scopes);
        return;
      }
      Object.assign(place, { report: message.report, reportedAt: performance.now() });
      if (message.started) isStarted();
    });
    log.debug({ pid: child.pid }, "a delivery process starts");
    return untilEnded(child, stopping, stopMs);
  }

  async function ask(place: Place): Promise<Snapshot[]> {
    const { child, name } = place;
    if (!child?.connected) return [];
    const { promise, resolve } = Promise.withResolvers<ScopeMetrics[]>();
    place.measured = resolve;
    // One that ends meanwhile does not answer either.
    child.send(MEASURED, () => {});
    const scopes = await Promise.race([promise, wait(SNAPSHOT_MS, undefined, { ref: false })]);
    return scopes ? [{ process: name, scopes }] : [];
  }

  let asking: Promise<Snapshot[]> | undefined;
  const ended = Promise.all(places.map(keep));
  return {
    ready: Promise.race([firstStart, ended]).then(() => {}),
    async unready() {
      const reasons = places.map(({ report, reportedAt }) =>
        performance.now() - reportedAt > REPORT_TIMEOUT_MS ? ["a delivery process does not respond"] : report,
      );
      return reasons.some((some) => some.length === 0) ? [] : [...new Set(reasons.flat())];
    },
    snapshots() {
      // Who asks meanwhile is given the same answer.
      asking ??= Promise.all(places.map(ask))
        .then((some) => some.flat())
        .finally(() => {
          asking = undefined;
        });
      return asking;
    },
    async stop() {
      await ended;
    },
  };
}

/**
 * Resolves with the exit code and signal; rejects if the process could not be started. Stops the process on abort, and
 * kills it after `stopMs`.
 */
async function untilEnded(child: ChildProcess, stopping: AbortSignal, stopMs: number): Promise<End> {
  let timer: NodeJS.Timeout | undefined;
  const stop = () => {
    if (child.connected) child.disconnect();
    timer = setTimeout(() => child.kill("SIGKILL"), stopMs);
  };
  if (stopping.aborted) stop();
  stopping.addEventListener("abort", stop);
  try {
    return await new Promise((resolve, reject) => {
      const { pid } = child;
      child.once("exit", (code, signal) => resolve({ pid, code, signal }));
      // Of one that runs, it is no end.
      child.on("error", (error) => {
        if (pid === undefined) reject(error);
      });
    });
  } finally {
    clearTimeout(timer);
    stopping.removeEventListener("abort", stop);
  }
}

/** Variables of this service that a delivery process does not need. */
const NOT_FOR_DELIVERY = [
  "ADMIN_KEY",
  "ADMIN_KEY_FILE",
  "TLS_CERT",
  "TLS_KEY",
  "DATABASE_READ_URL",
  "DATABASE_READ_URL_FILE",
  "SMTP_URL",
  "SMTP_URL_FILE",
  "SMTP_FROM",
  "NOTICE_EMAILS",
  "EVENT_TYPES",
  // Their contents are passed on.
  "DATABASE_URL_FILE",
  "SECRET_KEY_FILE",
];

/**
 * The environment of a delivery process: this process's settings, and what it determined itself.
 *
 * @param found.temporalAddress the address of an embedded Temporal. Of Temporal's other settings only the namespace
 *   applies then
 */
export function deliveryEnvironment(
  environment: NodeJS.ProcessEnv,
  found: { databaseUrl: string; secretKey: Buffer; temporalAddress: string | undefined },
): NodeJS.ProcessEnv {
  const { databaseUrl, secretKey, temporalAddress } = found;
  const isPassed = (name: string) =>
    !NOT_FOR_DELIVERY.includes(name) &&
    (temporalAddress === undefined || name === "TEMPORAL_NAMESPACE" || !name.startsWith("TEMPORAL_"));
  return {
    ...Object.fromEntries(Object.entries(environment).filter(([name]) => isPassed(name))),
    ROLE: "worker",
    DELIVERY_PROCESSES: "1",
    DATABASE_URL: databaseUrl,
    SECRET_KEY: secretKey.toString("base64"),
    // A worker requires the first. By the second, it ignores Temporal's configuration file.
    ...(temporalAddress === undefined
      ? {}
      : { TEMPORAL_ADDRESS: temporalAddress, [EMBEDDED_ADDRESS]: temporalAddress }),
  };
}
