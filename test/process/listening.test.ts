import { execFile } from "node:child_process";
import { once } from "node:events";
import { connect } from "node:net";
import { networkInterfaces } from "node:os";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { createTestDatabase } from "../support/database.ts";
import { type ServiceProcess, startServiceProcess } from "../support/service-process.ts";

const addresses = Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address));

/** An API process with HOST, until the end of the test. */
async function startApiOn(host: string): Promise<ServiceProcess> {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const service = await startServiceProcess({
    ROLE: "api",
    DATABASE_URL: database.url,
    SECRET_KEY: "0f".repeat(32),
    METRICS_PORT: "0",
    HOST: host,
  });
  onTestFinished(async () => {
    await service.end("SIGTERM");
  });
  return service;
}

test.runIf(addresses.includes("::1"))("without HOST, every port answers on IPv4 and on IPv6", async () => {
  // Empty is not set: over the loopback address that tests listen on otherwise.
  const service = await startApiOn("");
  for (const host of ["127.0.0.1", "::1"]) {
    const name = host.includes(":") ? `[${host}]` : host;
    expect((await fetch(`http://${name}:${service.httpPort}/healthz`)).status).toBe(200);
    expect((await fetch(`http://${name}:${service.metricsPort}/metrics`)).status).toBe(200);
    const socket = connect(service.grpcPort, host);
    await once(socket, "connect");
    socket.destroy();
  }
});

// Linux has all addresses of 127.0.0.0/8, and localhost is only one of them.
test.runIf(process.platform === "linux")(
  "prints addresses with HOST, at which the ports answer",
  async () => {
    const service = await startApiOn("127.0.0.2");
    const { httpPort, grpcPort, metricsPort } = service;
    const printed = service.printed();
    expect(printed).toContain(`API          http://127.0.0.2:${httpPort}\n`);
    expect(printed).toContain(`metrics      http://127.0.0.2:${metricsPort}/metrics\n`);
    expect(printed).toContain(`gRPC         127.0.0.2:${grpcPort}`);
    // The health check of the image.
    const check = (ports: Record<string, string>) =>
      promisify(execFile)(process.execPath, ["docker/healthcheck.js"], {
        env: { HOST: "127.0.0.2", HTTP_PORT: "1", ...ports },
      });
    await check({ HTTP_PORT: String(httpPort) });
    await check({ METRICS_PORT: String(metricsPort), TLS_CERT: "cert.pem" });
    await expect(check({ METRICS_PORT: "1", HTTP_PORT: String(httpPort) })).rejects.toMatchObject({
      code: 1,
    });
  },
);
