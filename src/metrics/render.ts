import { PrometheusSerializer } from "@opentelemetry/exporter-prometheus";
import type { Resource } from "@opentelemetry/resources";
import { DataPointType, type MetricData, type ScopeMetrics } from "@opentelemetry/sdk-metrics";

/** The metrics of a process at one time. */
export interface Snapshot {
  /** `main`, or the place of a delivery process, such as `delivery-1`. */
  process: string;
  scopes: ScopeMetrics[];
}

/** Names that Prometheus has another meaning for: `_count` ends the name of a histogram's series. */
const RENAMED: Record<string, string> = { "db.client.connection.count": "db.client.connections" };
/** Prometheus's spelling of units in names. Units in braces, such as `{event}`, have none. */
const UNITS: Record<string, string> = { s: "seconds", ms: "milliseconds", By: "bytes", "1": "ratio" };

/**
 * The snapshots in the text format of Prometheus. Each series has a label `process`, so that those of several processes
 * stay apart.
 */
export function renderSnapshots(snapshots: readonly Snapshot[], resource: Resource): string {
  const scopeMetrics = snapshots.flatMap(({ process, scopes }) =>
    scopes.map(({ scope, metrics }) => ({
      scope,
      metrics: metrics.map((metric) => labelled(metric, process)),
    })),
  );
  // Without the names of scopes, which tell the libraries apart and nothing else.
  return new PrometheusSerializer(undefined, false, undefined, false, true).serialize({
    resource,
    scopeMetrics,
  });
}

function labelled(metric: MetricData, process: string): MetricData {
  const dataPoints = (metric.dataPoints as { attributes: object; value: unknown }[])
    .filter(({ value }) => !Number.isNaN(value))
    .map((point) => ({ ...point, attributes: { ...point.attributes, process } }));
  const descriptor = { ...metric.descriptor, name: prometheusName(metric), unit: "" };
  return { ...metric, descriptor, dataPoints } as unknown as MetricData;
}

function prometheusName({ descriptor: { name, unit }, dataPointType }: MetricData): string {
  const suffix = unit === "1" && dataPointType !== DataPointType.GAUGE ? undefined : UNITS[unit];
  if (suffix === undefined || name.endsWith(suffix)) return RENAMED[name] ?? name;
  return `${name}.${suffix}`;
}
