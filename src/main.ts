import { setTimeout as wait } from "node:timers/promises";
import type { MetricsBuffer } from "@temporalio/worker";
import type { Service } from "./app/service.ts";
import { restartAsFits } from "./app/small-memory.ts";
import { clientAddress } from "./config/address.ts";
import type { Config } from "./config/config.ts";
import type { Progress } from "./lib/process/progress.ts";
import { untilToldToStop } from "./lib/process/shutdown.ts";

/** The time for stopping what has started when the service is stopped while it starts, in milliseconds. */
const GIVE_UP_MS = { external: 2_000, embedded: 15_000 };

const STOPPED_EARLY = "stopping before the service is ready";

/** The code of the service. */
async function load() {
  const [config, logger, service, docs] = await Promise.all([
    import("./config/config.ts"),
    import("./lib/process/logger.ts"),
    import("./app/service.ts"),
    import("./api/listeners/docs-pages.ts"),
  ]);
  return { ...config, ...logger, ...service, ...docs };
}

/** The entry point of `npm start`. */
async function main(): Promise<void> {
  restartAsFits();
  // With little processor time, loading the code takes seconds in which no handler runs. Until then a signal ends the process at
  // once; but PID 1 of a container ignores signals without a handler.
  const early = process.pid === 1 ? untilToldToStop() : undefined;
  const loaded = await (early ? Promise.race([load(), early.then(() => undefined)]) : load());
  const told = early ?? untilToldToStop();
  if (!loaded) {
    console.log(STOPPED_EARLY);
    return;
  }
  const { startService, readConfig, deliversInItself, exportsMetrics, createLogger, DOCS_PATH } = loaded;
  const config = readConfig(process.env);
  const progress: Progress = (line) => console.log(`  ${line}`);
  let temporalMetrics: MetricsBuffer | undefined;
  if (config.role !== "api" && deliversInItself(config)) {
    const { installRuntime } = await import("./temporal/native/runtime.ts");
    temporalMetrics = installRuntime(createLogger(config.logLevel), exportsMetrics(config));
  }
  console.log("Webhook service");
  const giveUp = new AbortController();
  const starting = startService(config, {
    progress,
    giveUp: giveUp.signal,
    ...(temporalMetrics ? { temporalMetrics } : {}),
  });
  const service = await Promise.race([starting, told.then(() => undefined)]);
  if (!service) {
    console.log(STOPPED_EARLY);
    giveUp.abort();
    const isEmbedded = config.database.url === undefined || !config.temporal.external;
    const stopped = starting.then(
      (late) => late.stop(),
      () => {},
    );
    await Promise.race([stopped, wait(isEmbedded ? GIVE_UP_MS.embedded : GIVE_UP_MS.external)]);
    return;
  }
  console.log(describe(service, config, DOCS_PATH));
  const outdated = await Promise.race([told, service.outdated]).catch((error: Error) => error);
  if (outdated) console.error(outdated.message);
  console.log("stopping: completing requests in flight");
  await service.stop().catch(fail("Stopping failed"));
  console.log("stopped");
  if (outdated) process.exit(1);
}

/** Reports what failed, and ends the process. */
const fail = (what: string) => async (error: unknown) => {
  const { explain } = await import("./config/explain.ts");
  console.error(explain(what, error));
  process.exit(1);
};

/** The addresses of the service, printed at startup. */
function describe(service: Service, config: Config, docsPath: string): string {
  const url = service.url + config.basePath;
  return [
    `ready (role: ${config.role})`,
    ...(service.metricsUrl ? [`  metrics      ${service.metricsUrl}`] : []),
    config.role === "worker" ? `  health       ${service.url}/readyz` : `  API          ${url}`,
    ...(config.role === "worker" ? [] : [`  API docs     ${url}${docsPath}`]),
    ...(service.hasPage ? [`  settings     ${url}/`] : []),
    ...(service.grpcPort === null || config.role === "worker"
      ? []
      : [`  gRPC         ${clientAddress(config.host, service.grpcPort)}`]),
    ...(service.temporalUiUrl ? [`  Temporal UI  ${service.temporalUiUrl}`] : []),
    ...(service.adminKeyFile ? [`  admin key    in ${service.adminKeyFile}`] : []),
  ].join("\n");
}

if (import.meta.main) {
  main().then(() => process.exit(0), fail("Startup failed"));
}
