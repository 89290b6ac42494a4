import { once } from "node:events";
import { connect } from "node:net";
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from "vitest";
import { startReceiver } from "../../demo/receiver.ts";
import { rows } from "../../src/db/database.ts";
import { type FaultParts, publishMany, register, startFaultParts, untilAllFinal } from "../faults/parts.ts";
import { anyPort } from "../support/any-port.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";
import { type Sample, scrape, sum } from "./scrapes.ts";

// Processes that start, die and are missed take long on a busy machine, and at full size on any.
vi.setConfig({ testTimeout: 400_000 });

const PENDING = "webhook_deliveries_pending";

let parts: FaultParts;
beforeAll(async () => {
  parts = await startFaultParts();
});
afterAll(() => parts?.end());

async function start(settings: Record<string, string>): Promise<ServiceProcess> {
  const service = await startServiceProcess({
    ...parts.environment,
    HEARTBEAT_TIMEOUT: "20s",
    METRICS_PORT: "0",
    ...settings,
  });
  onTestFinished(async () => {
    await service.end("SIGTERM");
  });
  return service;
}

const metricsOf = ({ metricsPort }: ServiceProcess): Promise<Sample[]> =>
  scrape(`http://127.0.0.1:${metricsPort}/metrics`);

const processesOf = (samples: readonly Sample[], name: string) =>
  [...new Set(samples.filter((sample) => sample.name === name).map(({ labels }) => labels.process))].sort();

async function exporting(services: readonly ServiceProcess[]): Promise<number[]> {
  const all = await Promise.all(services.map(metricsOf));
  return all.flatMap((samples, n) => (processesOf(samples, PENDING).length > 0 ? [n] : []));
}

test("of two processes one exports the backlog, and when it is killed the other does", async () => {
  const services = await Promise.all([start({ ROLE: "api" }), start({ ROLE: "api" })]);
  await expect.poll(() => exporting(services)).toHaveLength(1);
  const [first] = await exporting(services);
  const other = services[first === 0 ? 1 : 0] as ServiceProcess;
  await (services[first as number] as ServiceProcess).end("SIGKILL");
  await expect.poll(() => exporting([other])).toEqual([0]);
});

test("a service has the metrics of its delivery processes, by a label, and those of Temporal's SDK; one that ends leaves, and comes back under its label", async () => {
  const service = await start({ DELIVERY_PROCESSES: "2" });
  const receiver = await startReceiver(parts.certificate);
  onTestFinished(() => receiver.close());
  // Before the first delivery: Prometheus does not see the first increase of a new series.
  const delivered = async () =>
    (await metricsOf(service))
      .filter(({ name }) => name === "webhook_delivery_attempts_total")
      .map(({ labels, value }) => [labels.outcome, value]);
  await expect.poll(delivered).toEqual([
    ["delivered", 0],
    ["delivered", 0],
  ]);
  await register(service.grpcPort, parts.adminKey, `${receiver.url}/`);
  await publishMany(service.grpcPort, parts.adminKey, 20);
  await untilAllFinal(parts.db);
  const own = ["delivery-1", "delivery-2", "main"];
  await expect
    .poll(async () => processesOf(await metricsOf(service), "process_memory_usage_bytes"))
    .toEqual(own);
  const samples = await metricsOf(service);
  expect(sum(samples, "webhook_events_published_total", { process: "main" })).toBe(20);
  const [{ n } = { n: 0 }] = await rows<{ n: number }>(
    parts.db,
    "select count(*)::int as n from all_attempts",
  );
  expect(sum(samples, "webhook_delivery_attempts_total")).toBe(n);
  expect(processesOf(samples, "webhook_delivery_in_flight")).toEqual(["delivery-1", "delivery-2"]);
  await expect
    .poll(async () => sum(await metricsOf(service), "temporal_activity_execution_latency_seconds_count"))
    .toBeGreaterThan(0);
  const queues = new Set((await metricsOf(service)).map(({ labels }) => labels.task_queue));
  expect([...queues].filter((name) => /[0-9a-f]{8}-/.test(name ?? ""))).toEqual([]);
  // The SDK measures in seconds.
  const latency = "temporal_activity_execution_latency_seconds_bucket";
  expect(sum(await metricsOf(service), latency, { le: "300" })).toBeGreaterThan(0);
  expect((await metricsOf(service)).some(({ name, labels }) => name === latency && labels.le === "0.1")).toBe(
    true,
  );

  const [worker] = await rows<{ name: string }>(
    parts.db,
    "select name from workers order by id desc limit 1",
  );
  const processes = async () => processesOf(await metricsOf(service), "process_uptime_seconds");
  process.kill(Number(worker?.name.split("/").at(-1)), "SIGKILL");
  await expect.poll(processes).toHaveLength(2);
  await expect.poll(processes).toEqual(own);
});

test("delivery processes are measured while they wait for a Temporal that is away at their start", async () => {
  const gateway = await startDatabaseGateway(`tcp://${parts.temporal.address}`);
  onTestFinished(() => gateway.close());
  await gateway.set("hang up");
  const port = await anyPort();
  const starting = start({
    DELIVERY_PROCESSES: "1",
    METRICS_PORT: String(port),
    TEMPORAL_ADDRESS: new URL(gateway.url).host,
  });
  const processes = async () => {
    const samples = await scrape(`http://127.0.0.1:${port}/metrics`).catch(() => []);
    return processesOf(samples, "process_uptime_seconds");
  };
  await expect.poll(processes).toEqual(["delivery-1", "main"]);
  await gateway.set("pass");
  await starting;
});

test("an API with MAX_CONNECTIONS open connections answers the liveness check on the port of metrics", async () => {
  const api = await start({ ROLE: "api", MAX_CONNECTIONS: "10" });
  for (let n = 0; n < 10; n += 1) {
    const caller = connect(api.httpPort, "127.0.0.1");
    caller.on("error", () => {});
    onTestFinished(() => void caller.destroy());
    await once(caller, "connect");
  }
  await expect(fetch(`http://127.0.0.1:${api.httpPort}/healthz`)).rejects.toThrow();
  expect((await fetch(`http://127.0.0.1:${api.metricsPort}/healthz`)).status).toBe(200);
});
