import { fileURLToPath } from "node:url";
import {
  TooltipDisplayMode,
  VizLegendOptionsBuilder,
  VizTooltipOptionsBuilder,
} from "@grafana/grafana-foundation-sdk/common";
import * as grafana from "@grafana/grafana-foundation-sdk/dashboard";
import { DataqueryBuilder } from "@grafana/grafana-foundation-sdk/prometheus";
import { PanelBuilder } from "@grafana/grafana-foundation-sdk/timeseries";
import { writeOrCheck } from "./generated-file.ts";

const FILE = "deploy/grafana/webhook-service.json";
/** What the script writes: a dashboard to be imported into Grafana. */
export const DASHBOARD = fileURLToPath(new URL(`../${FILE}`, import.meta.url));

/** Chosen at the top of the dashboard. */
const DATASOURCE = { type: "prometheus", uid: "$" + "{datasource}" };
const JOB = 'job=~"$job"';
/** Grafana's columns are 24. */
const PANEL = { width: 8, height: 8 };

/** Grafana tells the lines of a graph apart by these. */
const REF_IDS = "ABCDEF";

/** One graph. */
interface Graph {
  title: string;
  description: string;
  /** As Grafana names units. */
  unit: string;
  /** Expressions by their legends. */
  lines: Record<string, string>;
}

/** Per second. @param more further matchers */
const rate = (metric: string, by = "", more = "") =>
  `sum ${by && `by (${by}) `}(rate(${metric}{${JOB}${more}}[$__rate_interval]))`;

const latest = (metric: string, by: string) => `max by (${by}) (${metric}{${JOB}})`;

const quantile = (part: number, metric: string, by = "") =>
  `histogram_quantile(${part}, ${rate(`${metric}_bucket`, by ? `le, ${by}` : "le")})`;

/** The median and the slow end of a histogram. */
const quantiles = (metric: string) => ({
  p50: quantile(0.5, metric),
  p95: quantile(0.95, metric),
  p99: quantile(0.99, metric),
});

const ROWS: Record<string, Graph[]> = {
  Deliveries: [
    {
      title: "Throughput",
      description: "Published events, deliveries with a 2xx, and deliveries that failed for good.",
      unit: "cps",
      lines: {
        published: rate("webhook_events_published_total"),
        delivered: rate("webhook_delivery_attempts_total", "", ',outcome="delivered"'),
        failed: rate("webhook_deliveries_failed_total"),
      },
    },
    {
      title: "Latency of deliveries",
      description: "From publishing to the receiver's 2xx, retries included.",
      unit: "s",
      lines: quantiles("webhook_delivery_latency_seconds"),
    },
    {
      title: "Oldest sendable delivery",
      description: "Alert: WebhookDeliveriesLate above 2 minutes.",
      unit: "s",
      lines: { age: latest("webhook_deliveries_oldest_sendable_age_seconds", "job") },
    },
    {
      title: "Backlog",
      description: "Deliveries that have not ended. Exact up to 100,000.",
      unit: "short",
      lines: { "{{state}}": latest("webhook_deliveries_pending", "state") },
    },
    {
      title: "Attempts by outcome",
      description: "Recorded attempts per second.",
      unit: "cps",
      lines: { "{{outcome}}": rate("webhook_delivery_attempts_total", "outcome") },
    },
    {
      title: "In flight",
      description: "Deliveries that are being sent or wait for a connection.",
      unit: "short",
      lines: {
        "{{instance}} {{process}}": `sum by (instance, process) (webhook_delivery_in_flight{${JOB}})`,
      },
    },
    {
      title: "Failed deliveries by reason",
      description: "Alert: WebhookDeliveriesFailing above 5 % of those that ended.",
      unit: "cps",
      lines: { "{{reason}}": rate("webhook_deliveries_failed_total", "reason") },
    },
    {
      title: "Overdue retries and expired leases",
      description: "Alerts: WebhookRetriesOverdue, WebhookLeasesExpired.",
      unit: "short",
      lines: {
        "overdue retries": latest("webhook_retries_overdue", "job"),
        "expired leases of {{holder}}s": `sum by (holder) (increase(webhook_leases_expired_total{${JOB}}[15m]))`,
      },
    },
    {
      title: "Latest dispatch run",
      description: "Time since its start. Alert: WebhookNoDispatch above 3 minutes.",
      unit: "s",
      lines: { age: latest("webhook_dispatch_last_run_age_seconds", "job") },
    },
  ],
  Receivers: [
    {
      title: "Duration of POSTs",
      description: "Connection and response included.",
      unit: "s",
      lines: quantiles("http_client_request_duration_seconds"),
    },
    {
      title: "POSTs by status",
      description: "Responses of receivers per second.",
      unit: "reqps",
      lines: {
        "{{http_response_status_code}}": rate(
          "http_client_request_duration_seconds_count",
          "http_response_status_code",
          ',http_response_status_code!=""',
        ),
      },
    },
    {
      title: "POSTs without a response",
      description:
        "By what failed: the connection to the host, the webhook after the request was sent, or this service.",
      unit: "reqps",
      lines: {
        "{{error_type}}": rate(
          "http_client_request_duration_seconds_count",
          "error_type",
          ',http_response_status_code=""',
        ),
      },
    },
  ],
  API: [
    {
      title: "Calls",
      description: "Per second, by method.",
      unit: "reqps",
      lines: { "{{rpc_method}}": rate("rpc_server_call_duration_seconds_count", "rpc_method") },
    },
    {
      title: "Slowest calls (p99)",
      description: "By method.",
      unit: "s",
      lines: { "{{rpc_method}}": quantile(0.99, "rpc_server_call_duration_seconds", "rpc_method") },
    },
    {
      title: "Refusals by reason",
      description: "Refused calls and events per second.",
      unit: "cps",
      lines: { "{{reason}}": rate("webhook_api_refusals_total", "reason") },
    },
  ],
  Database: [
    {
      title: "Slowest statements (p99)",
      description: "The wait for a connection included.",
      unit: "s",
      lines: {
        "{{db_operation_name}}": quantile(0.99, "db_client_operation_duration_seconds", "db_operation_name"),
      },
    },
    {
      title: "Connections",
      description: "Of each pool, by state.",
      unit: "short",
      lines: {
        "{{instance}} {{process}} {{db_client_connection_state}}": `sum by (instance, process, db_client_connection_state) (db_client_connections{${JOB}})`,
      },
    },
    {
      title: "Statements that wait for a connection",
      description: "Alert: WebhookDatabasePoolExhausted after 5 minutes.",
      unit: "short",
      lines: {
        "{{instance}} {{process}}": `sum by (instance, process) (db_client_connection_pending_requests{${JOB}})`,
      },
    },
  ],
  Processes: [
    {
      title: "Processor time",
      description: "Seconds per second, each process.",
      unit: "percentunit",
      lines: { "{{instance}} {{process}}": rate("process_cpu_time_seconds_total", "instance, process") },
    },
    {
      title: "Memory",
      description: "Resident, each process.",
      unit: "bytes",
      lines: { "{{instance}} {{process}}": latest("process_memory_usage_bytes", "instance, process") },
    },
    {
      title: "Bottlenecks",
      description: "The part of the time in which deliveries wait for a part of the process, by cause.",
      unit: "percentunit",
      lines: {
        "{{instance}} {{process}} {{cause}}": rate(
          "webhook_delivery_bottleneck_seconds_total",
          "instance, process, cause",
        ),
      },
    },
    {
      title: "Delay of the event loop (p99)",
      description: "Each process.",
      unit: "s",
      lines: {
        "{{instance}} {{process}}": latest("nodejs_eventloop_delay_p99_seconds", "instance, process"),
      },
    },
  ],
};

function panel({ title, description, unit, lines }: Graph, id: number): PanelBuilder {
  const built = new PanelBuilder()
    .id(id)
    .title(title)
    .description(description)
    .unit(unit)
    .min(0)
    .datasource(DATASOURCE)
    .span(PANEL.width)
    .height(PANEL.height)
    .legend(new VizLegendOptionsBuilder().showLegend(true))
    .tooltip(new VizTooltipOptionsBuilder().mode(TooltipDisplayMode.Multi));
  for (const [n, [legend, expression]] of Object.entries(lines).entries())
    built.withTarget(new DataqueryBuilder().refId(REF_IDS.charAt(n)).expr(expression).legendFormat(legend));
  return built;
}

/** The expressions of all graphs. */
export const EXPRESSIONS = Object.values(ROWS).flatMap((graphs) =>
  graphs.flatMap(({ lines }) => Object.values(lines)),
);

/** The dashboard as JSON. */
export function dashboardJson(): string {
  const dashboard = new grafana.DashboardBuilder("Webhook service")
    .uid("webhook-service")
    .description("Made by scripts/dashboard.ts of the service from the metrics in docs/operations.md.")
    .tags(["webhook-service"])
    .refresh("30s")
    .time({ from: "now-3h", to: "now" })
    .timezone("browser")
    .tooltip(grafana.DashboardCursorSync.Crosshair)
    .withVariable(new grafana.DatasourceVariableBuilder("datasource").label("Data source").type("prometheus"))
    .withVariable(
      new grafana.QueryVariableBuilder("job")
        .label("Job")
        .datasource(DATASOURCE)
        // A metric of APIs and one of workers, which may have jobs of their own: "All" means the listed ones.
        .query(
          'label_values({__name__=~"webhook_events_published_total|webhook_deliveries_failed_total"}, job)',
        )
        .includeAll(true)
        .multi(true),
    );
  let id = 0;
  for (const [title, graphs] of Object.entries(ROWS)) {
    id += 1;
    dashboard.withRow(new grafana.RowBuilder(title).id(id));
    for (const graph of graphs) {
      id += 1;
      dashboard.withPanel(panel(graph, id));
    }
  }
  return `${JSON.stringify(dashboard.build(), null, 2)}\n`;
}

if (import.meta.main) process.exitCode = writeOrCheck(FILE, dashboardJson());
