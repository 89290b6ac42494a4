import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { expect, onTestFinished, test, vi } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { startService } from "../../src/app/service.ts";
import { readConfig } from "../../src/config/config.ts";
import { temporaryFolder } from "../lib/dev-servers/support.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";
import { startTestService } from "../support/test-service.ts";
import { scrape, sum } from "./scrapes.ts";

/** Starts an API that ends with the test. */
async function startApi(settings: Record<string, string>) {
  const api = await startTestService({ ROLE: "api", ...settings });
  onTestFinished(api.stop);
  return api;
}

test("metrics are sent by OTLP where OpenTelemetry's variables say, and again before the process ends", async () => {
  const bodies: Buffer[] = [];
  const paths = new Set<string | undefined>();
  const collector = createServer(async (request, response) => {
    paths.add(request.url);
    bodies.push(await buffer(request));
    response.end();
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void collector.close());
  await once(collector, "listening");
  const variables = {
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(collector.address() as AddressInfo).port}`,
    OTEL_METRIC_EXPORT_INTERVAL: "1000",
    OTEL_SERVICE_NAME: "our-webhooks",
  };
  onTestFinished(() => void vi.unstubAllEnvs());
  for (const [name, value] of Object.entries(variables)) vi.stubEnv(name, value);
  const api = await startApi(variables);
  expect(api.metricsUrl).toBeUndefined();
  const received = (name: string) => bodies.some((body) => body.includes(name));
  await expect.poll(() => received("webhook.deliveries.pending")).toBe(true);
  expect([...paths]).toEqual(["/v1/metrics"]);
  for (const name of ["our-webhooks", "db.client.operation.duration", "nodejs.eventloop.utilization"])
    expect(received(name), name).toBe(true);
  expect(received("127.0.0.1")).toBe(false);
  const before = bodies.length;
  await api.stop();
  expect(bodies.length).toBeGreaterThan(before);
});

test("without METRICS_PORT and OTLP nothing is measured or served", () => {
  const { metrics } = readConfig({});
  expect(metrics).toEqual({ port: undefined, otlp: false });
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: "http://collector:4318" };
  expect(readConfig(endpoint).metrics.otlp).toBe(true);
  expect(readConfig({ OTEL_METRICS_EXPORTER: "otlp" }).metrics.otlp).toBe(true);
  expect(readConfig({ ...endpoint, OTEL_METRICS_EXPORTER: "none" }).metrics.otlp).toBe(false);
  expect(readConfig({ ...endpoint, OTEL_SDK_DISABLED: "true" }).metrics.otlp).toBe(false);
});

test("with TLS, the time until the certificate expires is measured; with MAX_CONNECTIONS open connections, the port of metrics answers the liveness check", async () => {
  const folder = await temporaryFolder();
  const { cert, key } = await (await createLocalAuthority()).issue(["localhost", "127.0.0.1"]);
  const files = { TLS_CERT: path.join(folder, "cert.pem"), TLS_KEY: path.join(folder, "key.pem") };
  await writeFile(files.TLS_CERT, cert);
  await writeFile(files.TLS_KEY, key);
  const api = await startApi({ ...files, METRICS_PORT: "0", MAX_CONNECTIONS: "10" });
  const expires = new X509Certificate(cert).validToDate.getTime();
  vi.useFakeTimers({ toFake: ["Date"], now: expires - 3_600_000 });
  onTestFinished(() => void vi.useRealTimers());
  expect(sum(await scrape(api.metricsUrl as string), "webhook_tls_certificate_remaining_seconds")).toBe(
    3_600,
  );
  const open = () => {
    const caller = connect(Number(new URL(api.url).port), "127.0.0.1").on("error", () => {});
    onTestFinished(() => void caller.destroy());
    return caller;
  };
  for (let n = 0; n < 10; n += 1) await once(open(), "connect");
  await once(open(), "close");
  expect((await fetch(new URL("/healthz", api.metricsUrl))).status).toBe(200);
});

test("delivery processes are measured, by a label, also while they wait for a Temporal that is away at their start", async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const port = await anyPort();
  const environment = { TEMPORAL_ADDRESS: `127.0.0.1:${await anyPort()}` };
  const settings = {
    ...environment,
    HOST: "127.0.0.1",
    HTTP_PORT: "0",
    GRPC_PORT: "0",
    LOG_LEVEL: "silent",
    DATABASE_URL: database.url,
    SECRET_KEY: "0f".repeat(32),
    METRICS_PORT: String(port),
    DELIVERY_PROCESSES: "1",
  };
  const giveUp = new AbortController();
  const starting = startService(readConfig(settings), {
    environment: { ...environment, ...settings },
    workflowBundle: { code: "" },
    giveUp: giveUp.signal,
  }).catch((error: unknown) => error);
  onTestFinished(async () => {
    giveUp.abort();
    await starting;
  });
  const processes = async () => {
    const samples = await scrape(`http://127.0.0.1:${port}/metrics`).catch(() => []);
    const named = samples.filter(({ name }) => name === "process_uptime_seconds");
    return named.map(({ labels }) => labels.process).sort();
  };
  await expect.poll(processes).toEqual(["delivery-1", "main"]);
});
