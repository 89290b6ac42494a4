import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { Agent, request } from "node:http";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import path from "node:path";
import { Code, createClient } from "@connectrpc/connect";
import { Connection } from "@temporalio/client";
import { expect, onTestFinished, test } from "vitest";
import { Health, HealthCheckResponse_ServingStatus } from "../../gen/health/v1/health_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { readConfig } from "../../src/config/config.ts";
import { STATUS_CODES } from "../../src/contract/errors.ts";
import { type ServiceOverrides, startService } from "../../src/service.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";
import { part } from "../support/parts.ts";
import { startTemporalGateway } from "../support/temporal-gateway.ts";
import {
  keyedTransport,
  ownTemporalNames,
  quietRuntime,
  startTestService,
  WOKEN,
} from "../support/test-service.ts";

const adminKey = `whk_${randomBytes(24).toString("base64url")}`;
const [{ address: TEMPORAL_ADDRESS }] = await Promise.all([part("temporal"), part("workflows")]);

/** Starts a service on a database of the test's own, until the end of the test. Its ports are known before it has started. */
async function start(settings: Record<string, string>, overrides: ServiceOverrides = {}) {
  const database = await createTestDatabase();
  const giveUp = new AbortController();
  const [httpPort, grpcPort] = [await anyPort(), await anyPort()];
  quietRuntime();
  const starting = startService(
    readConfig({
      HOST: "127.0.0.1",
      HTTP_PORT: String(httpPort),
      GRPC_PORT: String(grpcPort),
      LOG_LEVEL: "silent",
      SECRET_KEY: randomBytes(32).toString("base64"),
      ADMIN_KEY: adminKey,
      TEMPORAL_ADDRESS,
      DATABASE_URL: database.url,
      ...settings,
    }),
    { environment: { TEMPORAL_ADDRESS }, giveUp: giveUp.signal, ...overrides },
  );
  onTestFinished(async () => {
    giveUp.abort();
    await starting.then(
      (service) => service.stop(),
      () => {},
    );
    await database.drop();
  });
  const url = `http://127.0.0.1:${httpPort}`;
  return { starting, url, httpPort, grpcPort, readiness: () => readiness(url) };
}

/** The status of `/readyz` and its reasons; 0 if nobody listens. */
async function readiness(url: string): Promise<{ status: number; reasons: string[] }> {
  const response = await fetch(`${url}/readyz`).catch(() => undefined);
  const { reasons = [] } = ((await response?.json()) ?? {}) as { reasons?: string[] };
  return { status: response?.status ?? 0, reasons };
}

const READY = { status: 200, reasons: [] };

test("an API listens before its database is available, says why it is not ready, and serves once it is", async () => {
  const database = await createTestDatabase();
  const gateway = await startDatabaseGateway(database.url);
  onTestFinished(async () => {
    await gateway.close();
    await database.drop();
  });
  await gateway.set("refuse");
  const { starting, url, grpcPort, readiness } = await start({ ROLE: "api", DATABASE_URL: gateway.url });
  await expect.poll(readiness).toEqual({
    status: 503,
    reasons: expect.arrayContaining([
      "the database does not respond",
      "the service is starting and waits for its database",
    ]),
  });
  expect(await fetch(`${url}/healthz`)).toMatchObject({ status: 200 });
  const webhooks = createClient(WebhookService, keyedTransport(grpcPort, adminKey));
  await expect(webhooks.listWebhooks({})).rejects.toMatchObject({ code: Code.Unavailable });
  const refused = await fetch(`${url}/api/webhook/list`, { headers: { "X-Service-Key": adminKey } });
  expect(refused.status).toBe(503);
  expect(refused.headers.get("Retry-After")).not.toBeNull();

  await gateway.set("pass");
  await starting;
  // An answer from before the start ended is kept for a moment.
  await expect.poll(readiness).toEqual(READY);
  expect((await webhooks.listWebhooks({})).webhooks).toEqual([]);
});

test("a worker says without the API key that Temporal refuses access or has no such namespace, while it starts and while it runs", async () => {
  const gateway = await startTemporalGateway();
  gateway.answer(STATUS_CODES.UNAUTHENTICATED);
  const namespace = `missing-${randomUUID()}`;
  const { starting, readiness } = await start(
    { ROLE: "worker" },
    {
      names: ownTemporalNames(namespace),
      environment: {
        TEMPORAL_ADDRESS: gateway.address,
        TEMPORAL_NAMESPACE: namespace,
        TEMPORAL_API_KEY: "revoked-key",
        TEMPORAL_TLS: "false",
      },
    },
  );
  const unready = (reason: string) => ({ status: 503, reasons: [reason] });
  const refused = (status: string) =>
    unready(
      `Temporal refuses access (${status}); check the API key, the client certificate, and their access to the namespace`,
    );
  await expect.poll(readiness).toEqual(refused("UNAUTHENTICATED"));
  gateway.answer(null);
  await expect
    .poll(readiness)
    .toEqual(
      unready(
        `Temporal has no namespace "${namespace}" (TEMPORAL_NAMESPACE); create it: temporal operator namespace create --namespace ${namespace}`,
      ),
    );
  const connection = await Connection.connect({ address: TEMPORAL_ADDRESS });
  onTestFinished(() => connection.close());
  await connection.workflowService.registerNamespace({
    namespace,
    workflowExecutionRetentionPeriod: { seconds: 86_400 as never },
  });
  await starting;
  await expect.poll(readiness).toEqual(READY);
  gateway.answer(STATUS_CODES.PERMISSION_DENIED);
  await expect.poll(readiness).toEqual(refused("PERMISSION_DENIED"));
  gateway.answer(null);
});

test("a worker that cannot reach its database takes nothing from Temporal until it can", async () => {
  let gateway: Awaited<ReturnType<typeof startDatabaseGateway>> | undefined;
  const service = await startTestService({ ...WOKEN, HEARTBEAT_TIMEOUT: "1s" }, async (url) => {
    gateway = await startDatabaseGateway(url);
    return { DATABASE_URL: gateway.url };
  });
  onTestFinished(async () => {
    await gateway?.set("pass");
    await service.stop();
    await gateway?.close();
  });
  const receiver = await service.receiver();
  await service.register(`${receiver.url}/`);
  await service.untilFinal((await service.publish()).eventId);

  await gateway?.set("refuse");
  await expect
    .poll(async () => (await readiness(service.url)).reasons)
    .toContain("the delivery worker does not poll Temporal, because the database does not respond");
  const { action } = await service.temporal.schedule.getHandle(service.scheduleId).describe();
  const startRun = (taskQueue = action.taskQueue) =>
    service.temporal.workflow.start("dispatchPendingDeliveries", {
      taskQueue,
      workflowId: randomUUID(),
      args: action.args ?? [],
    });
  const run = await startRun();
  const isTaken = async () => ((await run.fetchHistory()).events?.length ?? 0) > 2;
  // A worker that polls would take it before Temporal has accepted the others, which nobody takes.
  for (let n = 0; n < 50; n += 1) await startRun("nobody's");
  expect(await isTaken()).toBe(false);
  await gateway?.set("pass");
  await expect.poll(isTaken).toBe(true);
  await service.untilFinal((await service.publish()).eventId);
  expect(await readiness(service.url)).toEqual(READY);
});

test("a stopping API is not ready, yet serves calls for SHUTDOWN_DELAY and ends HTTP/1.1 connections", async () => {
  const endDelay = new AbortController();
  const { starting, url, grpcPort, readiness } = await start(
    { ROLE: "api", SHUTDOWN_DELAY: "1m" },
    { giveUp: endDelay.signal },
  );
  const { stop } = await starting;
  onTestFinished(() => endDelay.abort());
  const transport = keyedTransport(grpcPort, adminKey);
  const webhooks = createClient(WebhookService, transport);
  await webhooks.listWebhooks({});
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const list = async () => {
    const call = request(`${url}/api/webhook/list`, { agent, headers: { "X-Service-Key": adminKey } }).end();
    const [response] = await once(call, "response");
    response.resume();
    return {
      status: response.statusCode,
      connection: response.headers.connection,
      socket: call.socket as Socket,
    };
  };
  const before = await list();
  expect(before).toMatchObject({ status: 200, connection: "keep-alive" });

  const stopped = stop();
  await expect.poll(readiness).toEqual({ status: 503, reasons: ["the service is stopping"] });
  expect(await createClient(Health, transport).check({})).toMatchObject({
    status: HealthCheckResponse_ServingStatus.NOT_SERVING,
  });
  expect((await webhooks.listWebhooks({})).webhooks).toEqual([]);
  const during = await list();
  expect(during).toMatchObject({ status: 200, connection: "close", socket: before.socket });
  expect(await list()).toMatchObject({ status: 200 });
  endDelay.abort();
  await stopped;
  await expect(fetch(`${url}/healthz`)).rejects.toThrow();
});

const addresses = Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address));

test.runIf(addresses.includes("::1"))("without HOST, every port answers on IPv4 and on IPv6", async () => {
  const { starting, httpPort, grpcPort } = await start({ ROLE: "api", HOST: "", METRICS_PORT: "0" });
  const { metricsUrl = "" } = await starting;
  const metricsPort = Number(new URL(metricsUrl).port);
  for (const host of ["127.0.0.1", "::1"])
    for (const port of [httpPort, grpcPort, metricsPort]) {
      const socket = connect(port, host);
      await once(socket, "connect");
      socket.destroy();
    }
});

test.each(["HTTP_PORT", "GRPC_PORT"])(
  "a %s in use is told before the embedded servers are started",
  async (variable) => {
    const taken = createServer();
    taken.listen(0, "127.0.0.1");
    await once(taken, "listening");
    onTestFinished(() => void taken.close());
    const { port } = taken.address() as AddressInfo;
    const dataDir = path.join(tmpdir(), `never-${randomUUID()}`);
    const ports = { HTTP_PORT: "0", GRPC_PORT: "0", [variable]: String(port) };
    const config = readConfig({ HOST: "127.0.0.1", LOG_LEVEL: "silent", DATA_DIR: dataDir, ...ports });
    await expect(startService(config, { environment: {} })).rejects.toThrow(
      `port ${port} is in use by another program; set ${variable} to another port`,
    );
    expect(existsSync(dataDir)).toBe(false);
  },
);
