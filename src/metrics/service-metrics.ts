import type { Meter } from "@opentelemetry/api";
import type { Logger } from "pino";
import { type Config, clientAddress, exportsMetrics } from "../config/index.ts";
import type { ReadBacklog } from "./backlog-gauges.ts";
import { listenForMetrics, METRICS_PATH } from "./listener.ts";
import { startMetrics } from "./metrics.ts";
import type { Snapshot } from "./render.ts";

/** The metrics of a service: its own, those of the database, and those of the processes that it starts. */
export interface ServiceMetrics {
  meter: Meter;
  /** The URL for Prometheus; undefined without a port. */
  url: string | undefined;
  /**
   * Exports what waits in the database, unless another process does.
   *
   * @param directUrl PostgreSQL's own address
   * @returns ends it
   */
  watchBacklog(directUrl: string, read: ReadBacklog): () => Promise<void>;
  close(): Promise<void>;
}

/**
 * Starts measuring, and the listener. Where nothing is exported, it does nothing.
 *
 * @param ofOthers what the processes have measured that this one has started
 */
export async function exportMetrics(
  config: Pick<Config, "metrics" | "host">,
  log: Logger,
  ofOthers: () => Promise<Snapshot[]>,
): Promise<ServiceMetrics> {
  const { port, otlp } = config.metrics;
  const given = { snapshots: port !== undefined, otlp, process: "main", log };
  if (!exportsMetrics(config)) {
    return { ...(await startMetrics(given)), url: undefined, watchBacklog: () => async () => {} };
  }
  // Loaded only where they are used, with OpenTelemetry's SDK.
  const { BacklogGauges } = await import("./backlog-gauges.ts");
  const { renderSnapshots } = await import("./render.ts");
  const backlog = new BacklogGauges();
  const { meter, exports, close } = await startMetrics({ ...given, producers: [backlog] });
  const listener =
    port === undefined || !exports
      ? undefined
      : await listenForMetrics({
          host: config.host,
          port,
          log,
          async render() {
            const [own, others] = await Promise.all([exports.snapshot(), ofOthers()]);
            return renderSnapshots([own, ...others], exports.resource);
          },
        });
  return {
    meter,
    url: listener && `http://${clientAddress(config.host, listener.port)}${METRICS_PATH}`,
    watchBacklog(directUrl, read) {
      backlog.start(directUrl, log, read);
      return () => backlog.close();
    },
    async close() {
      await listener?.close();
      await close();
    },
  };
}
