import { X509Certificate } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { buffer } from "node:stream/consumers";
import { expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import { createTestDatabase } from "../support/database.ts";
import { startServiceProcess } from "../support/service-process.ts";
import { scrape, sum } from "./scrapes.ts";

/** Settings of an API on a database of its own. */
async function apiSettings(): Promise<Record<string, string>> {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  return { ROLE: "api", DATABASE_URL: database.url, SECRET_KEY: "0f".repeat(32) };
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
  const service = await startServiceProcess({
    ...(await apiSettings()),
    OTEL_EXPORTER_OTLP_ENDPOINT: `http://127.0.0.1:${(collector.address() as AddressInfo).port}`,
    OTEL_METRIC_EXPORT_INTERVAL: "1000",
    OTEL_SERVICE_NAME: "our-webhooks",
  });
  onTestFinished(async () => {
    await service.end("SIGTERM");
  });
  expect(service.metricsPort).toBe(0);
  const received = (name: string) => bodies.some((body) => body.includes(name));
  await expect.poll(() => received("webhook.deliveries.pending")).toBe(true);
  expect([...paths]).toEqual(["/v1/metrics"]);
  for (const name of ["our-webhooks", "db.client.operation.duration", "nodejs.eventloop.utilization"])
    expect(received(name), name).toBe(true);
  expect(received("127.0.0.1")).toBe(false);
  const before = bodies.length;
  await service.end("SIGTERM");
  expect(bodies.length).toBeGreaterThan(before);
});

test("with TLS, the time until the certificate expires is measured", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-metrics-"));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  const { cert, key } = await (await createLocalAuthority()).issue(["localhost", "127.0.0.1"]);
  const files = { TLS_CERT: path.join(folder, "cert.pem"), TLS_KEY: path.join(folder, "key.pem") };
  await writeFile(files.TLS_CERT, cert);
  await writeFile(files.TLS_KEY, key);
  const service = await startServiceProcess({ ...(await apiSettings()), ...files, METRICS_PORT: "0" });
  onTestFinished(async () => {
    await service.end("SIGTERM");
  });
  const samples = await scrape(`http://127.0.0.1:${service.metricsPort}/metrics`);
  const remaining = sum(samples, "webhook_tls_certificate_remaining_seconds");
  const expires = new X509Certificate(cert).validToDate.getTime();
  expect(Math.abs(remaining - (expires - Date.now()) / 1_000)).toBeLessThan(60);
});

test("a port that is in use stops the start, and the error names METRICS_PORT", async () => {
  const holder = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void holder.close());
  await once(holder, "listening");
  const { port } = holder.address() as AddressInfo;
  await expect(startServiceProcess({ ...(await apiSettings()), METRICS_PORT: String(port) })).rejects.toThrow(
    `cannot listen on port ${port} (EADDRINUSE); set METRICS_PORT to another port`,
  );
});
