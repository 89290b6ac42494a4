import { randomUUID } from "node:crypto";
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
import { startService } from "../../src/app/service.ts";
import { readConfig } from "../../src/config/config.ts";
import { STATUS_CODES } from "../../src/contract/errors.ts";
import { createTestDatabase } from "../support/database.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";
import { part } from "../support/parts.ts";
import { startTemporalGateway } from "../support/temporal-gateway.ts";
import { keyedTransport, ownTemporalNames, startTestService, WOKEN } from "../support/test-service.ts";
import { adminKey, READY, readinessOf, startedService } from "./started-service.ts";

const addresses = Object.values(networkInterfaces()).flatMap((all = []) => all.map(({ address }) => address));

test("an API listens, without HOST on IPv4 and on IPv6, before its database is available, says why it is not ready, and serves once it is", async () => {
  const database = await createTestDatabase();
  const gateway = await startDatabaseGateway(database.url);
  onTestFinished(async () => {
    await gateway.close();
    await database.drop();
  });
  await gateway.set("refuse");
  const { starting, url, httpPort, grpcPort, readiness } = await startedService({
    ...{ ROLE: "api", HOST: "", METRICS_PORT: "0", DATABASE_URL: gateway.url },
  });
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
  const { metricsUrl = "" } = await starting;
  // An answer from before the start ended is kept for a moment.
  await expect.poll(readiness).toEqual(READY);
  expect((await webhooks.listWebhooks({})).webhooks).toEqual([]);
  for (const host of ["127.0.0.1", "::1"].filter((address) => addresses.includes(address)))
    for (const port of [httpPort, grpcPort, Number(new URL(metricsUrl).port)]) {
      const socket = connect(port, host);
      await once(socket, "connect");
      socket.destroy();
    }
});

test("a worker says without the API key that Temporal refuses access or has no such namespace, while it starts and while it runs", async () => {
  const gateway = await startTemporalGateway();
  gateway.answer(STATUS_CODES.UNAUTHENTICATED);
  const namespace = `missing-${randomUUID()}`;
  const { starting, readiness } = await startedService(
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
  const connection = await Connection.connect(await part("temporal"));
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
    .poll(async () => (await readinessOf(service.url)).reasons)
    .toContain(
      "the delivery worker does not poll Temporal, because the database does not respond or takes no writes",
    );
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
  expect(await readinessOf(service.url)).toEqual(READY);
});

test("a stopping API is not ready, yet serves calls for SHUTDOWN_DELAY and ends HTTP/1.1 connections", async () => {
  const { starting, url, grpcPort, giveUp, readiness } = await startedService({
    ...{ ROLE: "api", SHUTDOWN_DELAY: "1m" },
  });
  const { stop } = await starting;
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
  giveUp.abort();
  await stopped;
  await expect(fetch(`${url}/healthz`)).rejects.toThrow();
});

test.each([
  ["HTTP_PORT", "is in use by another program"],
  ["GRPC_PORT", "is in use by another program"],
  ["METRICS_PORT", "(EADDRINUSE)"],
])("a %s in use is told before the embedded servers are started", async (variable, why) => {
  const taken = createServer().listen(0, "127.0.0.1");
  onTestFinished(() => void taken.close());
  await once(taken, "listening");
  const { port } = taken.address() as AddressInfo;
  const dataDir = path.join(tmpdir(), `never-${randomUUID()}`);
  const ports = { HTTP_PORT: "0", GRPC_PORT: "0", [variable]: String(port) };
  const config = readConfig({ HOST: "127.0.0.1", LOG_LEVEL: "silent", DATA_DIR: dataDir, ...ports });
  await expect(startService(config, { environment: {} })).rejects.toThrow(
    `port ${port} ${why}; set ${variable} to another port`,
  );
  expect(existsSync(dataDir)).toBe(false);
});
