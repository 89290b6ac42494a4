import { randomUUID } from "node:crypto";
import { createNoopMeter, DiagLogLevel, diag, type Meter } from "@opentelemetry/api";
import type { Resource } from "@opentelemetry/resources";
import type { IMetricReader, MetricProducer } from "@opentelemetry/sdk-metrics";
import type { Logger } from "pino";
import { observeProcess } from "./process-gauges.ts";
import type { Snapshot } from "./render.ts";

/** Options of the exports of a process. */
export interface MetricsOptions {
  /** Whether anybody asks for snapshots: the listener of METRICS_PORT, or the process that started this one. */
  snapshots: boolean;
  /** Whether metrics are sent by OTLP, as OpenTelemetry's own variables say. */
  otlp: boolean;
  /** `main`, or the place of a delivery process, such as `delivery-1`. */
  process: string;
  /** Producers of metrics beside the instruments. */
  producers?: MetricProducer[];
  log: Logger;
}

/** The meter of a process, and its exports. */
export interface Metrics {
  /** Makes instruments; they do nothing where nothing is exported. */
  meter: Meter;
  /** Undefined where nothing is exported. */
  exports: { snapshot(): Promise<Snapshot>; resource: Resource } | undefined;
  /** Sends what was measured since the last time. */
  close(): Promise<void>;
}

/** The maximum time for sending the last metrics by OTLP when the process ends, in milliseconds. */
const LAST_EXPORT_MS = 5_000;

/** Starts measuring. Where nothing is exported, OpenTelemetry's SDK is not even loaded. */
export async function startMetrics(options: MetricsOptions): Promise<Metrics> {
  const { snapshots, otlp, log } = options;
  if (!snapshots && !otlp) return { meter: createNoopMeter(), exports: undefined, close: async () => {} };
  const { MeterProvider, MetricReader } = await import("@opentelemetry/sdk-metrics");
  const { RuntimeNodeInstrumentation } = await import("@opentelemetry/instrumentation-runtime-node");
  const { producers = [] } = options;
  class SnapshotReader extends MetricReader {
    protected override async onShutdown(): Promise<void> {}
    protected override async onForceFlush(): Promise<void> {}
  }
  const reader = new SnapshotReader({ metricProducers: producers });
  const resource = await describeProcess(options.process);
  const readers: IMetricReader[] = [reader];
  if (otlp) readers.push(await createOtlpReader(producers, log));
  const provider = new MeterProvider({ resource, readers });
  const meter = provider.getMeter("webhook-service");
  observeProcess(meter);
  const runtime = new RuntimeNodeInstrumentation();
  runtime.setMeterProvider(provider);
  return {
    meter,
    exports: {
      resource,
      async snapshot() {
        const { resourceMetrics, errors } = await reader.collect();
        for (const err of errors) log.warn({ err }, "a metric could not be read");
        return { process: options.process, scopes: resourceMetrics.scopeMetrics };
      },
    },
    async close() {
      runtime.disable();
      await provider.shutdown({ timeoutMillis: LAST_EXPORT_MS }).catch(() => {});
    },
  };
}

/** OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add to it. */
export async function describeProcess(process: string): Promise<Resource> {
  const { detectResources, envDetector, resourceFromAttributes } = await import("@opentelemetry/resources");
  return resourceFromAttributes({
    "service.name": "webhook-service",
    "service.instance.id": randomUUID(),
    "webhook.process": process,
  }).merge(detectResources({ detectors: [envDetector] }));
}

/** Logs that an export by OTLP failed, without the error. */
export function reportOtlpErrors(log: Logger): void {
  const quiet = () => {};
  diag.setLogger(
    {
      // The message may hold the endpoint with its password.
      error: () => log.warn("metrics or traces could not be sent by OTLP; check OTEL_EXPORTER_OTLP_ENDPOINT"),
      warn: quiet,
      info: quiet,
      debug: quiet,
      verbose: quiet,
    },
    { logLevel: DiagLogLevel.ERROR, suppressOverrideMessage: true },
  );
}

/** The defaults of OpenTelemetry's specification, in milliseconds. */
const OTLP_DEFAULTS = { intervalMs: 60_000, timeoutMs: 30_000 };

/** Sends metrics where OTEL_EXPORTER_OTLP_ENDPOINT and the other variables of the exporter say. */
async function createOtlpReader(metricProducers: MetricProducer[], log: Logger): Promise<IMetricReader> {
  const { PeriodicExportingMetricReader } = await import("@opentelemetry/sdk-metrics");
  const { OTLPMetricExporter } = await import("@opentelemetry/exporter-metrics-otlp-proto");
  reportOtlpErrors(log);
  const intervalMs = milliseconds("OTEL_METRIC_EXPORT_INTERVAL", OTLP_DEFAULTS.intervalMs);
  return new PeriodicExportingMetricReader({
    exporter: new OTLPMetricExporter(),
    exportIntervalMillis: intervalMs,
    exportTimeoutMillis: Math.min(
      intervalMs,
      milliseconds("OTEL_METRIC_EXPORT_TIMEOUT", OTLP_DEFAULTS.timeoutMs),
    ),
    metricProducers,
  });
}

/** A variable of OpenTelemetry's; as its specification says, what is no number counts as not set. */
export function milliseconds(variable: string, otherwise: number): number {
  const value = Number(process.env[variable] || otherwise);
  return Number.isInteger(value) && value > 0 ? value : otherwise;
}
