import type { MetricsBuffer } from "@temporalio/worker";
import { DOCS_PATH } from "./api/openapi/docs-pages.ts";
import { type Config, deliversInItself, exportsMetrics, readConfig } from "./config/config.ts";
import { explain } from "./process/explain.ts";
import { createLogger } from "./process/logger.ts";
import type { Progress } from "./process/progress.ts";
import { untilToldToStop } from "./process/shutdown.ts";
import { type Service, startService } from "./service.ts";
import { restartAsFits } from "./worker/small-memory.ts";

/** The entry point of `npm start`. */
async function main(): Promise<void> {
  restartAsFits();
  const config = readConfig(process.env);
  const progress: Progress = (line) => console.log(`  ${line}`);
  let temporalMetrics: MetricsBuffer | undefined;
  if (config.role !== "api" && deliversInItself(config)) {
    const { installRuntime } = await import("./temporal/connection/runtime.ts");
    temporalMetrics = installRuntime(createLogger(config.logLevel), exportsMetrics(config));
  }
  console.log("Webhook service");
  const service = await startService(config, { progress, ...(temporalMetrics ? { temporalMetrics } : {}) });
  // Whoever reads that it is ready may stop it at once.
  const told = untilToldToStop();
  console.log(describe(service, config));
  await told;
  console.log("stopping: completing requests in flight");
  await service.stop();
}

/** The addresses of the service, printed at startup. */
function describe(service: Service, config: Config): string {
  return [
    `ready (role: ${config.role})`,
    ...(service.metricsUrl ? [`  metrics      ${service.metricsUrl}`] : []),
    config.role === "worker" ? `  health       ${service.url}/readyz` : `  API          ${service.url}`,
    ...(config.role === "worker" ? [] : [`  API docs     ${service.url}${DOCS_PATH}`]),
    ...(service.hasPage ? [`  settings     ${service.url}/`] : []),
    ...(service.grpcPort === null || config.role === "worker"
      ? []
      : [`  gRPC         localhost:${service.grpcPort}`]),
    ...(service.temporalUiUrl ? [`  Temporal UI  ${service.temporalUiUrl}`] : []),
    ...(service.adminKeyFile ? [`  admin key    in ${service.adminKeyFile}`] : []),
  ].join("\n");
}

if (import.meta.main) {
  main().then(
    () => process.exit(0),
    (error: unknown) => {
      console.error(explain("Startup failed", error));
      process.exit(1);
    },
  );
}
