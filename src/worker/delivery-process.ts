import { setTimeout as wait } from "node:timers/promises";
import { readConfig } from "../config/config.ts";
import { openDatabases } from "../db/database.ts";
import { createSecretBox } from "../db/webhooks/secret-box.ts";
import { explain } from "../process/explain.ts";
import { createLogger } from "../process/logger.ts";
import { temporalNames } from "../temporal/connection/names.ts";
import { installRuntime } from "../temporal/connection/runtime.ts";
import { temporalTarget } from "../temporal/connection/target.ts";
import { startDelivery } from "./delivery.ts";
import { type DeliveryReport, REPORT_INTERVAL_MS } from "./delivery-processes.ts";

/**
 * The entry point of a delivery process. The parent process has migrated the schema, and stops this process with a
 * signal or by ending itself for any reason.
 *
 * @param sharedBy the number of processes that share the machine's memory, including this one
 */
async function main(sharedBy: number): Promise<void> {
  const stopping = new AbortController();
  const stop = () => stopping.abort();
  for (const reason of ["SIGINT", "SIGTERM", "disconnect"]) process.on(reason, stop);
  process.title = "webhook-delivery";

  const config = readConfig(process.env);
  const log = createLogger(config.logLevel);
  installRuntime(log);
  const { close, ...databases } = openDatabases(config.database.url as string, config.database);
  const delivery = await startDelivery({
    ...databases,
    secrets: createSecretBox(config.secretKey as Buffer, config.previousSecretKeys),
    target: temporalTarget(process.env),
    names: temporalNames(),
    delivery: config.delivery,
    dispatch: config.dispatch,
    stopping: stopping.signal,
    log,
    sharedBy,
  });
  while (!stopping.signal.aborted) {
    const report: DeliveryReport = await delivery.unready();
    if (process.connected) process.send?.(report);
    await wait(REPORT_INTERVAL_MS, undefined, { signal: stopping.signal }).catch(() => {});
  }
  await delivery.stop();
  await close();
}

if (import.meta.main) {
  main(Number(process.argv[2] ?? 1)).then(
    () => process.exit(0),
    (error: unknown) => {
      console.error(explain("Starting a delivery process failed", error));
      process.exit(1);
    },
  );
}
