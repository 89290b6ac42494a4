import { setTimeout as wait } from "node:timers/promises";
import packageJson from "../../package.json" with { type: "json" };
import { explain, readConfig } from "../config/index.ts";
import { watchEventTypes } from "../event-types/index.ts";
import { openDatabases, untilAnswered } from "../lib/pg/index.ts";
import { createLogger, watchBlockedThread } from "../lib/process/index.ts";
import {
  createDeliveryInstruments,
  createOperationDuration,
  drainTemporalMetrics,
  type Metrics,
  observePool,
  startMetrics,
  startTracing,
} from "../metrics/index.ts";
import { temporalNames, temporalTarget } from "../temporal/index.ts";
import { installRuntime } from "../temporal/native/index.ts";
import { createSecretBox } from "../webhooks/index.ts";
import { startDelivery } from "./delivery.ts";
import { type FromDelivery, MEASURED, REPORT_INTERVAL_MS } from "./delivery-processes.ts";
import { Instance } from "./instance.ts";

/**
 * The entry point of a delivery process. The parent process has migrated the schema, and stops this process with a
 * signal or by ending itself for any reason.
 *
 * @param sharedBy processes that share the machine's memory with it, itself included
 * @param name its name among the metrics of the process that started it
 */
async function main(sharedBy: number, name: string): Promise<void> {
  const stopping = new AbortController();
  const stop = () => stopping.abort();
  for (const reason of ["SIGINT", "SIGTERM", "SIGHUP", "disconnect"]) process.on(reason, stop);
  process.title = "webhook-delivery";

  const config = readConfig(process.env);
  const log = createLogger(config.logLevel, {
    role: config.role,
    version: packageJson.version,
    process: name,
  });
  const { port, otlp } = config.metrics;
  // The process that started this one has the listener.
  const metrics = await startMetrics({ snapshots: port !== undefined, otlp, process: name, log });
  const tracing = await startTracing({ ...config.traces, process: name, log });
  process.on("message", (message) => {
    if (message !== MEASURED) return;
    tellMeasured(metrics).catch((err) => log.warn({ err }, "the process could not tell what it measured"));
  });
  const buffer = installRuntime(log, metrics.exports !== undefined);
  const endDraining = buffer ? drainTemporalMetrics(metrics.meter, buffer) : () => {};
  const { close, ...databases } = openDatabases(config.database.url as string, {
    ...config.database,
    delivers: true,
    operationDuration: metrics.exports && createOperationDuration(metrics.meter),
  });
  observePool(metrics.meter, databases.db);
  const thread = watchBlockedThread(log);
  let outdated: Error | undefined;
  const instance = new Instance({
    db: databases.db,
    log,
    release: packageJson.version,
    role: "delivery",
    stopping: stopping.signal,
    onOutdated(error) {
      outdated = error;
      stop();
    },
  });
  const types = watchEventTypes(databases.db, log, { builtIn: config.builtInEventTypes });
  const { signal } = stopping;
  await Promise.all([instance.start(), untilAnswered(() => types.refresh(), { signal })]).catch(
    (error: unknown) => {
      // Told to stop meanwhile, it ends below.
      if (outdated || !stopping.signal.aborted) throw error;
    },
  );
  const delivery = startDelivery({
    ...databases,
    admit: () => instance.admit(),
    works: thread.works,
    secrets: createSecretBox(config.secretKey as Buffer, config.previousSecretKeys),
    target: temporalTarget(process.env),
    names: temporalNames(),
    delivery: config.delivery,
    dispatch: config.dispatch,
    stopping: stopping.signal,
    log,
    sharedBy,
    instruments: createDeliveryInstruments(metrics.meter),
    tracing,
  });
  let started = false;
  void delivery.ready.then(() => {
    started = true;
    thread.start();
  });
  while (!stopping.signal.aborted) {
    // In this order, so that a report from before the start does not come with it.
    tell({ started, report: await delivery.unready() });
    await wait(REPORT_INTERVAL_MS, undefined, { signal: stopping.signal }).catch(() => {});
  }
  await delivery.stop();
  types.close();
  await instance.close();
  thread.stop();
  endDraining();
  process.removeAllListeners("message");
  await tracing.close();
  await metrics.close();
  await close();
  if (outdated) throw outdated;
}

function tell(message: FromDelivery): void {
  // A send fails if the parent was just killed. Requests in flight are completed nevertheless.
  if (process.connected) process.send?.(message, undefined, undefined, () => {});
}

async function tellMeasured({ exports }: Metrics): Promise<void> {
  if (exports) tell({ scopes: (await exports.snapshot()).scopes });
}

if (import.meta.main) {
  main(Number(process.argv[2] ?? 1), process.argv[3] ?? "delivery-1").then(
    () => process.exit(0),
    (error: unknown) => {
      console.error(explain("Starting a delivery process failed", error));
      process.exit(1);
    },
  );
}
