import { createClient } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { startReceiver } from "../../demo/receiver.ts";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import packageJson from "../../package.json" with { type: "json" };
import { rows } from "../../src/lib/pg/database.ts";
import { publishMany, register, startFaultParts, untilAllFinal } from "../faults/parts.ts";
import { orderEvent } from "../support/grpc-calls.ts";
import { startServiceProcess } from "../support/service-process.ts";
import { keyedTransport } from "../support/test-service.ts";
import { type Sample, scrape, sum } from "./scrapes.ts";

const EVENTS = 20;
const LATENCY = "temporal_activity_execution_latency_seconds";

test("a service exports the metrics of its delivery processes, by label, and of Temporal's SDK; a process that ends disappears, and returns under its label", async () => {
  const parts = await startFaultParts();
  onTestFinished(() => parts.end());
  const service = await startServiceProcess({
    ...parts.environment,
    HEARTBEAT_TIMEOUT: "20s",
    METRICS_PORT: "0",
    DELIVERY_PROCESSES: "2",
    LOG_LEVEL: "debug",
    OTEL_TRACES_EXPORTER: "otlp",
    OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1",
  });
  onTestFinished(async () => void (await service.end("SIGTERM")));
  const metrics = (): Promise<Sample[]> => scrape(`http://127.0.0.1:${service.metricsPort}/metrics`);
  const processesOf = async (name: string) => {
    const found = (await metrics()).filter((sample) => sample.name === name);
    return [...new Set(found.map(({ labels }) => labels.process))].sort();
  };
  const receiver = await startReceiver(parts.certificate);
  onTestFinished(() => receiver.close());
  // Before the first delivery: Prometheus does not see the first increase of a new series.
  const delivered = async () =>
    (await metrics())
      .filter(({ name }) => name === "webhook_delivery_attempts_total")
      .map(({ labels, value }) => [labels.outcome, value]);
  await expect.poll(delivered).toEqual([
    ["delivered", 0],
    ["delivered", 0],
  ]);
  await register(service.grpcPort, parts.adminKey, `${receiver.url}/`);
  await publishMany(service.grpcPort, parts.adminKey, EVENTS);
  await untilAllFinal(parts.db);
  const all = ["delivery-1", "delivery-2", "main"];
  await expect.poll(() => processesOf("process_memory_usage_bytes")).toEqual(all);
  const samples = await metrics();
  expect(sum(samples, "webhook_events_published_total", { process: "main" })).toBe(EVENTS);
  const attempts = await rows(parts.db, "select from all_attempts");
  expect(sum(samples, "webhook_delivery_attempts_total")).toBe(attempts.length);
  expect(await processesOf("webhook_delivery_in_flight")).toEqual(["delivery-1", "delivery-2"]);
  await expect.poll(async () => sum(await metrics(), `${LATENCY}_count`)).toBeGreaterThan(0);
  const later = await metrics();
  const queues = new Set(later.map(({ labels }) => labels.task_queue));
  expect([...queues].filter((name) => /[0-9a-f]{8}-/.test(name ?? ""))).toEqual([]);
  // The SDK measures in seconds.
  expect(sum(later, `${LATENCY}_bucket`, { le: "300" })).toBeGreaterThan(0);
  expect(later.some(({ name, labels }) => name === `${LATENCY}_bucket` && labels.le === "0.1")).toBe(true);

  const worker = await parts.db("workers").orderBy("id", "desc").first("name");
  process.kill(Number(worker.name.split("/").at(-1)), "SIGKILL");
  await expect.poll(() => processesOf("process_uptime_seconds")).toHaveLength(2);
  await expect.poll(() => processesOf("process_uptime_seconds")).toEqual(all);

  // Log lines of a traced call carry its trace id.
  const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
  const headers = { traceparent: `00-${traceId}-00f067aa0ba902b7-01` };
  const events = createClient(EventService, keyedTransport(service.grpcPort, parts.adminKey));
  await events.publishEvent(orderEvent(), { headers });
  const fields = { role: "all", version: packageJson.version, traceId, msg: "call" };
  const had = Object.entries(fields).map(([name, value]) => `(?=.*"${name}":"${value}")`);
  await expect.poll(service.printed).toMatch(new RegExp(`^{${had.join("")}`, "m"));
});
