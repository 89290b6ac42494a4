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
import { type DeliveryReport, REPORT_MS } from "./delivery-processes.ts";

/**
 * A process that delivers and does nothing else. The process that started it has made the tables, and stops it by a signal
 * or by its own end, however that came.
 *
 * @param sharedBy processes that share the machine's memory with it, itself included
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
    // Where the other process has just been killed there is nobody to tell; what is in flight is finished all the same.
    if (process.connected) process.send?.(report, undefined, undefined, () => {});
    await wait(REPORT_MS, undefined, { signal: stopping.signal }).catch(() => {});
  }
  await delivery.stop();
  await close();
}

if (import.meta.main) {
  main(Number(process.argv[2] ?? 1)).then(
    () => process.exit(0),
    (error: unknown) => {
      console.error(explain("A delivery process could not start", error));
      process.exit(1);
    },
  );
}
