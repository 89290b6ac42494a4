import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { Logger } from "pino";
import type { Delivery } from "./delivery.ts";
import { fitting } from "./small-memory.ts";

const PROGRAM = fileURLToPath(new URL("delivery-process.ts", import.meta.url));
/** A status report of a delivery process: the reasons why it cannot deliver; empty if ready. */
export type DeliveryReport = string[];

/** The interval between reports, in milliseconds. */
export const REPORT_INTERVAL_MS = 1_000;
/** The delay before a process that ended is restarted, in milliseconds: doubled each time, up to the maximum. */
const RESTART_DELAY_MS = { min: 1_000, max: 30_000 };
/** The uptime after which the restart delay is reset to the minimum, in milliseconds. */
const MIN_HEALTHY_UPTIME_MS = 60_000;
/** The time without a report after which a process counts as unresponsive, in milliseconds. */
const REPORT_TIMEOUT_MS = 5 * REPORT_INTERVAL_MS;

/** A slot for a delivery process and the status of its current process. */
interface Place {
  report: DeliveryReport;
  reportedAt: number;
}

/**
 * Delivers in child processes and restarts those that end. The others take over their claims when the lease expires.
 * Resolves when the first process delivers.
 *
 * @param options.environment the complete environment of the processes, see `deliveryEnvironment`
 * @param options.stopMs the maximum time for completing requests in flight, in milliseconds
 * @param options.stopping must be aborted before `stop` is called
 */
export async function startDeliveryProcesses(options: {
  count: number;
  environment: NodeJS.ProcessEnv;
  stopMs: number;
  stopping: AbortSignal;
  log: Logger;
}): Promise<Delivery> {
  const { count, environment, stopMs, stopping, log } = options;
  const places = Array.from(
    { length: count },
    (): Place => ({ report: ["a delivery process is starting"], reportedAt: Number.NaN }),
  );
  const fit = fitting(count + 1);
  const { promise: firstReady, resolve: isReady } = Promise.withResolvers<void>();

  async function keep(place: Place): Promise<void> {
    let restartMs = RESTART_DELAY_MS.min;
    while (!stopping.aborted) {
      const since = performance.now();
      const child = fork(PROGRAM, [String(count + 1)], {
        env: { ...environment, ...fit?.environment },
        execArgv: [...process.execArgv, ...(fit?.arguments ?? [])],
      });
      child.on("message", (report: DeliveryReport) => {
        Object.assign(place, { report, reportedAt: performance.now() });
        if (report.length === 0) isReady();
      });
      log.debug({ pid: child.pid }, "starting a delivery process");
      const [code, signal] = await untilEnded(child, stopping, stopMs);
      if (stopping.aborted) return;
      Object.assign(place, {
        report: ["a delivery process ended and is being restarted"],
        reportedAt: Number.NaN,
      });
      if (performance.now() - since > MIN_HEALTHY_UPTIME_MS) restartMs = RESTART_DELAY_MS.min;
      log.error({ pid: child.pid, code, signal, restartMs }, "a delivery process ended; restarting");
      await wait(restartMs, undefined, { signal: stopping }).catch(() => {});
      restartMs = Math.min(RESTART_DELAY_MS.max, 2 * restartMs);
    }
  }

  const ended = Promise.all(places.map(keep));
  await Promise.race([firstReady, ended]);
  return {
    async unready() {
      const reasons = places.map(({ report, reportedAt }) =>
        performance.now() - reportedAt > REPORT_TIMEOUT_MS ? ["a delivery process does not respond"] : report,
      );
      return reasons.some((some) => some.length === 0) ? [] : [...new Set(reasons.flat())];
    },
    async stop() {
      await ended;
    },
  };
}

/** Resolves with the exit code and signal. On stop, sends a signal and kills the process after a timeout. */
async function untilEnded(
  child: ChildProcess,
  stopping: AbortSignal,
  stopMs: number,
): Promise<[code: number | null, signal: string | null]> {
  let timer: NodeJS.Timeout | undefined;
  const stop = () => {
    if (child.connected) child.disconnect();
    timer = setTimeout(() => child.kill("SIGKILL"), stopMs);
  };
  if (stopping.aborted) stop();
  stopping.addEventListener("abort", stop);
  try {
    return (await once(child, "exit")) as [number | null, string | null];
  } finally {
    clearTimeout(timer);
    stopping.removeEventListener("abort", stop);
  }
}

/** Variables of this service that a delivery process does not need. */
const NOT_FOR_DELIVERY = ["ADMIN_KEY", "TLS_CERT", "TLS_KEY"];

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
    ...(temporalAddress === undefined ? {} : { TEMPORAL_ADDRESS: temporalAddress }),
  };
}
