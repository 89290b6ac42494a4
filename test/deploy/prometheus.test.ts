import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { parse } from "yaml";
import { startReceiver } from "../../demo/receiver.ts";
import { EXPRESSIONS } from "../../scripts/dashboard.ts";
import { rows } from "../../src/lib/pg/database.ts";
import { type FaultParts, publishMany, register, startFaultParts, untilAllFinal } from "../faults/parts.ts";
import { scrapeText } from "../metrics/scrapes.ts";
import { anyPort } from "../support/any-port.ts";
import { ROOT } from "../support/program.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { until } from "../support/wait.ts";
import { describeWith } from "./programs.ts";

const file = (name: string) => path.join(ROOT, name);

/** What promtool prints, and its exit code. */
function promtool(args: string[], input = ""): { code: number | null; output: string } {
  const { status, stdout, stderr } = spawnSync("promtool", args, { input, encoding: "utf8" });
  return { code: status, output: stdout + stderr };
}

describeWith(["promtool"], "the alert rules", () => {
  test("fire when they should, and only then", () => {
    expect(promtool(["test", "rules", file("test/deploy/alerts.yml")])).toMatchObject({ code: 0 });
  });

  test("have a test and an entry of the runbook each", () => {
    const { groups } = parse(readFileSync(file("deploy/prometheus/alerts.yml"), "utf8")) as {
      groups: { rules: { alert: string; annotations: { runbook_url: string } }[] }[];
    };
    const tests = readFileSync(file("test/deploy/alerts.yml"), "utf8");
    const runbook = readFileSync(file("docs/operations.md"), "utf8");
    for (const { alert, annotations } of groups.flatMap(({ rules }) => rules)) {
      expect(tests).toContain(`alertname: ${alert}`);
      expect(runbook).toContain(`### ${alert}\n`);
      expect(annotations.runbook_url).toBe(`docs/operations.md#${alert.toLowerCase()}`);
    }
  });
});

describeWith(["prometheus"], "two APIs and two workers", () => {
  const EVENTS = 40;
  let parts: FaultParts;
  let services: ServiceProcess[];
  let prometheus: { process: ChildProcess; url: string; folder: string };
  beforeAll(async () => {
    parts = await startFaultParts();
    const start = (settings: Record<string, string>) =>
      startServiceProcess({ ...parts.environment, HEARTBEAT_TIMEOUT: "20s", METRICS_PORT: "0", ...settings });
    services = [
      await start({ ROLE: "api" }),
      await start({ ROLE: "api" }),
      await start({ ROLE: "worker" }),
      await start({ ROLE: "worker", DELIVERY_PROCESSES: "2" }),
    ];
    prometheus = await startPrometheus(services.map(({ metricsPort }) => `127.0.0.1:${metricsPort}`));
  });
  afterAll(async () => {
    if (prometheus) {
      prometheus.process.kill("SIGTERM");
      await once(prometheus.process, "exit");
      await rm(prometheus.folder, { recursive: true, force: true });
    }
    await Promise.all((services ?? []).map((service) => service.end("SIGTERM")));
    await parts?.end();
  });

  /** The value of an expression that answers one series; undefined while it answers none. */
  async function query(expression: string): Promise<number | undefined> {
    const response = await fetch(
      `${prometheus.url}/api/v1/query?${new URLSearchParams({ query: expression })}`,
    );
    const { data, error } = (await response.json()) as {
      data?: { result: { value: [number, string] }[] };
      error?: string;
    };
    if (!data) throw new Error(`${expression}: ${error}`);
    const [only] = data.result;
    return only && Number(only.value[1]);
  }

  const counted = async (sql: string) => {
    const [row] = await rows<{ n: number }>(parts.db, `select count(*)::int as n from ${sql}`);
    return row?.n;
  };

  test("are scraped, and the sums over them equal the counts of the database", async () => {
    const receiver = await startReceiver(parts.certificate, ({ attempt }) => (attempt === 1 ? 503 : 200));
    const failing = await startReceiver(parts.certificate, () => 500);
    onTestFinished(async () => {
      await Promise.all([receiver.close(), failing.close()]);
    });
    const [first, second] = services as [ServiceProcess, ServiceProcess];
    for (const { url } of [receiver, failing]) await register(first.grpcPort, parts.adminKey, `${url}/`);
    await Promise.all(
      [first, second].map(({ grpcPort }) => publishMany(grpcPort, parts.adminKey, EVENTS / 2)),
    );
    await untilAllFinal(parts.db);
    await expect.poll(() => query("count(up == 1)")).toBe(4);
    const sums: [expression: string, table: string][] = [
      ["sum(webhook_events_published_total)", "events"],
      ["sum(webhook_delivery_attempts_total)", "all_attempts"],
      ["sum(webhook_deliveries_failed_total)", "deliveries where outcome = 'failed'"],
      ["sum(webhook_delivery_latency_seconds_count)", "deliveries where outcome = 'delivered'"],
      ["sum(http_client_request_duration_seconds_count)", "all_attempts"],
      ["sum(webhook_deliveries_pending)", "queue"],
    ];
    for (const [expression, table] of sums)
      await expect.poll(() => query(expression), { message: expression }).toBe(await counted(table));
    expect(await counted("events")).toBe(EVENTS);
    // Of all processes one exports the backlog.
    expect(await query('count(webhook_deliveries_pending{state="pending"})')).toBe(1);
    expect(await query("count(count by (instance, process) (process_uptime_seconds))")).toBe(6);
  });

  test("fill the graphs of the dashboard", async () => {
    const empty: string[] = [];
    for (const expression of EXPRESSIONS) {
      const asked = expression.replaceAll("$job", ".+").replaceAll("$__rate_interval", "5m");
      if ((await query(asked)) === undefined) empty.push(expression);
    }
    // Nothing was refused, and every receiver answered.
    expect(empty.filter((expression) => !/refusals|status_code=""/.test(expression))).toEqual([]);
  });

  test("have metrics whose names and types promtool finds nothing wrong with", async () => {
    for (const { metricsPort } of services) {
      const text = await scrapeText(`http://127.0.0.1:${metricsPort}/metrics`);
      expect(promtool(["check", "metrics"], text)).toEqual({ code: 0, output: "" });
    }
  });
});

/** A Prometheus that scrapes the targets each second, and has the alert rules. */
async function startPrometheus(targets: readonly string[]) {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-prometheus-"));
  const config = path.join(folder, "prometheus.yml");
  // JSON is YAML.
  await writeFile(
    config,
    JSON.stringify({
      global: { scrape_interval: "1s" },
      rule_files: [file("deploy/prometheus/alerts.yml")],
      scrape_configs: [{ job_name: "webhook-service", static_configs: [{ targets }] }],
    }),
  );
  const url = `http://127.0.0.1:${await anyPort()}`;
  const options = [
    `--config.file=${config}`,
    `--storage.tsdb.path=${path.join(folder, "data")}`,
    `--web.listen-address=${new URL(url).host}`,
  ];
  const child = spawn("prometheus", options, { stdio: "ignore" });
  await until(async () => (await fetch(`${url}/-/ready`).catch(() => undefined))?.ok === true).catch(
    (error) => {
      child.kill("SIGKILL");
      throw error;
    },
  );
  return { process: child, url, folder };
}
