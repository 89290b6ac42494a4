import { spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { Agent, request } from "node:http";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Code, createClient } from "@connectrpc/connect";
import { Connection } from "@temporalio/client";
import proto from "@temporalio/proto";
import { expect, onTestFinished, test, vi } from "vitest";
import { Health, HealthCheckResponse_ServingStatus } from "../../gen/health/v1/health_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { readConfig } from "../../src/config/config.ts";
import { STATUS_CODES } from "../../src/contract/errors.ts";
import { openDatabase } from "../../src/db/database.ts";
import { lockDataDir } from "../../src/embedded/service-lock.ts";
import { explain } from "../../src/process/explain.ts";
import { startService } from "../../src/service.ts";
import { temporaryFolder } from "../embedded/support.ts";
import { anyPort } from "../support/any-port.ts";
import { createTestDatabase } from "../support/database.ts";
import { startDatabaseGateway } from "../support/database-gateway.ts";
import { part } from "../support/parts.ts";
import { startServiceProcess } from "../support/service-process.ts";
import { startTemporalGateway } from "../support/temporal-gateway.ts";
import {
  keyedTransport,
  ownTemporalNames,
  quietRuntime,
  startTestService,
  WOKEN,
} from "../support/test-service.ts";

const { EventType } = proto.temporal.api.enums.v1;
await part("workflows");

const adminKey = `whk_${randomBytes(24).toString("base64url")}`;

/** The settings of a process beside its addresses. */
const settings = {
  HOST: "127.0.0.1",
  LOG_LEVEL: "silent",
  SECRET_KEY: randomBytes(32).toString("base64"),
  ADMIN_KEY: adminKey,
  TEMPORAL_ADDRESS: (await part("temporal")).address,
};

async function readiness(url: string): Promise<{ status: number; reasons: string[] }> {
  const response = await fetch(`${url}/readyz`);
  const { reasons = [] } = (await response.json()) as { reasons?: string[] };
  return { status: response.status, reasons };
}

test("an API listens before its database is available, says why it is not ready, and serves once it is", async () => {
  const database = await createTestDatabase();
  const gateway = await startDatabaseGateway(database.url);
  await gateway.set("refuse");
  const [httpPort, grpcPort] = [await anyPort(), await anyPort()];
  const url = `http://127.0.0.1:${httpPort}`;
  const starting = startService(
    readConfig({
      ...settings,
      ROLE: "api",
      HTTP_PORT: String(httpPort),
      GRPC_PORT: String(grpcPort),
      DATABASE_URL: gateway.url,
    }),
    { environment: { TEMPORAL_ADDRESS: settings.TEMPORAL_ADDRESS } },
  );
  onTestFinished(async () => {
    await gateway.set("pass");
    await (await starting).stop();
    await gateway.close();
    await database.drop();
  });
  const alive = () => fetch(`${url}/healthz`).then(({ status }) => status);
  await expect.poll(() => alive().catch(() => 0)).toBe(200);
  expect(await readiness(url)).toEqual({
    status: 503,
    reasons: expect.arrayContaining([
      "the database does not respond",
      "the service is starting and waits for its database",
    ]),
  });
  const webhooks = createClient(WebhookService, keyedTransport(grpcPort, adminKey));
  await expect(webhooks.listWebhooks({})).rejects.toMatchObject({ code: Code.Unavailable });
  const refused = await fetch(`${url}/api/webhook/list`, { headers: { "X-Service-Key": adminKey } });
  expect(refused.status).toBe(503);
  expect(refused.headers.get("Retry-After")).not.toBeNull();

  await gateway.set("pass");
  await starting;
  // An answer from before the start ended is kept for a moment.
  await expect.poll(() => readiness(url)).toEqual({ status: 200, reasons: [] });
  expect((await webhooks.listWebhooks({})).webhooks).toEqual([]);
});

test("a worker names the Temporal namespace that does not exist, and delivers once it does", async () => {
  const database = await createTestDatabase();
  quietRuntime();
  const namespace = `missing-${randomUUID()}`;
  const httpPort = await anyPort();
  const url = `http://127.0.0.1:${httpPort}`;
  const starting = startService(
    readConfig({ ...settings, ROLE: "worker", HTTP_PORT: String(httpPort), DATABASE_URL: database.url }),
    {
      names: ownTemporalNames(namespace),
      environment: { TEMPORAL_ADDRESS: settings.TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE: namespace },
    },
  );
  const connection = await Connection.connect({ address: settings.TEMPORAL_ADDRESS });
  onTestFinished(async () => {
    await (await starting).stop();
    await connection.close();
    await database.drop();
  });
  await expect
    .poll(() => readiness(url).catch(() => undefined))
    .toEqual({
      status: 503,
      reasons: [
        `Temporal has no namespace "${namespace}" (TEMPORAL_NAMESPACE); create it: temporal operator namespace create --namespace ${namespace}`,
      ],
    });
  await connection.workflowService.registerNamespace({
    namespace,
    workflowExecutionRetentionPeriod: { seconds: 86_400 as never },
  });
  await starting;
  expect(await readiness(url)).toEqual({ status: 200, reasons: [] });
});

test("a worker whose access Temporal refuses says so while it starts and while it runs, without the API key", async () => {
  const database = await createTestDatabase();
  quietRuntime();
  const gateway = await startTemporalGateway();
  gateway.answer(STATUS_CODES.UNAUTHENTICATED);
  const httpPort = await anyPort();
  const url = `http://127.0.0.1:${httpPort}`;
  const starting = startService(
    readConfig({ ...settings, ROLE: "worker", HTTP_PORT: String(httpPort), DATABASE_URL: database.url }),
    {
      names: ownTemporalNames(),
      environment: {
        TEMPORAL_ADDRESS: gateway.address,
        TEMPORAL_API_KEY: "revoked-key",
        TEMPORAL_TLS: "false",
      },
    },
  );
  onTestFinished(async () => {
    gateway.answer(null);
    await (await starting).stop();
    await database.drop();
  });
  const refused = (status: string) => ({
    status: 503,
    reasons: [
      `Temporal refuses access (${status}); check the API key, the client certificate, and their access to the namespace`,
    ],
  });
  await expect
    .poll(() => readiness(url).catch(() => undefined), { timeout: 20_000 })
    .toEqual(refused("UNAUTHENTICATED"));
  gateway.answer(null);
  await starting;
  await expect.poll(() => readiness(url)).toEqual({ status: 200, reasons: [] });
  gateway.answer(STATUS_CODES.PERMISSION_DENIED);
  await expect.poll(() => readiness(url)).toEqual(refused("PERMISSION_DENIED"));
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
  const handle = await service.temporal.workflow.start("dispatchPendingDeliveries", {
    taskQueue: action.taskQueue,
    workflowId: randomUUID(),
    args: action.args ?? [],
  });
  // A worker that polls takes it within milliseconds.
  await wait(1_000);
  const history = await handle.fetchHistory();
  expect(history.events?.map(({ eventType }) => eventType)).toEqual([
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
    EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED,
  ]);
  await gateway?.set("pass");
  // Not until it has ended: it may be the run whose pump waits for what is published.
  await expect.poll(async () => (await handle.fetchHistory()).events?.length).toBeGreaterThan(2);
  await service.untilFinal((await service.publish()).eventId);
  expect(await readiness(service.url)).toMatchObject({ status: 200 });
});

test("a stopping API is not ready, yet serves calls for SHUTDOWN_DELAY and ends HTTP/1.1 connections", async () => {
  const database = await createTestDatabase();
  const service = await startService(
    readConfig({
      ...settings,
      ROLE: "api",
      HTTP_PORT: "0",
      GRPC_PORT: "0",
      DATABASE_URL: database.url,
      SHUTDOWN_DELAY: "3s",
    }),
    { environment: { TEMPORAL_ADDRESS: settings.TEMPORAL_ADDRESS } },
  );
  onTestFinished(async () => {
    await service.stop();
    await database.drop();
  });
  const transport = keyedTransport(service.grpcPort as number, adminKey);
  const webhooks = createClient(WebhookService, transport);
  await webhooks.listWebhooks({});
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const list = async () => {
    const call = request(`${service.url}/api/webhook/list`, {
      agent,
      headers: { "X-Service-Key": adminKey },
    }).end();
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

  const stopped = service.stop();
  await expect
    .poll(() => readiness(service.url))
    .toEqual({ status: 503, reasons: ["the service is stopping"] });
  expect(await createClient(Health, transport).check({})).toMatchObject({
    status: HealthCheckResponse_ServingStatus.NOT_SERVING,
  });
  expect((await webhooks.listWebhooks({})).webhooks).toEqual([]);
  const during = await list();
  expect(during).toMatchObject({ status: 200, connection: "close", socket: before.socket });
  expect(await list()).toMatchObject({ status: 200 });
  await stopped;
  await expect(fetch(`${service.url}/healthz`)).rejects.toThrow();
});

test("a part that cannot be stopped is reported, and the parts after it are stopped", async () => {
  const dataDir = await temporaryFolder();
  quietRuntime();
  const ports = { HTTP_PORT: "0", GRPC_PORT: "0", METRICS_PORT: "0" };
  const { stop, metricsUrl = "" } = await startService(
    readConfig({ ...settings, ...ports, DATA_DIR: dataDir, DELIVERY_PROCESSES: "0" }),
    { names: ownTemporalNames(), environment: { TEMPORAL_ADDRESS: settings.TEMPORAL_ADDRESS } },
  );
  onTestFinished(stop);
  expect(await fetch(metricsUrl)).toMatchObject({ status: 200 });
  // The signal that stops the embedded PostgreSQL arrives, but is said to be refused.
  const { kill } = process;
  const signals = vi.spyOn(process, "kill").mockImplementation((pid, signal) => {
    kill.call(process, pid, signal);
    if (signal === "SIGINT") throw new Error("kill EPERM");
    return true;
  });
  onTestFinished(() => signals.mockRestore());
  await expect(stop()).rejects.toThrow("kill EPERM");
  await (await lockDataDir(dataDir)).release();
  await expect(fetch(metricsUrl)).rejects.toThrow();
});

test("if several parts cannot be stopped, each error is reported, the first one first", async () => {
  const parts = new AsyncDisposableStack();
  for (const name of ["database", "API", "worker"])
    parts.defer(() => Promise.reject(new Error(`the ${name} does not stop`)));
  const error = await parts.disposeAsync().catch((reason) => reason);
  expect(explain("Stopping failed", error)).toBe(
    "Stopping failed: the worker does not stop\n  and: the API does not stop\n  and: the database does not stop\n(set LOG_LEVEL=debug for details)",
  );
});

test("one Ctrl-C that arrives twice, from the terminal and from npm, stops the service in order", async () => {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const service = await startServiceProcess({
    ...settings,
    ROLE: "api",
    DATABASE_URL: database.url,
    // It still runs when the second one arrives.
    SHUTDOWN_DELAY: "300ms",
  });
  onTestFinished(() => void service.process.kill("SIGKILL"));
  const closed = once(service.process, "close");
  service.process.kill("SIGINT");
  await wait(20);
  service.process.kill("SIGINT");
  const [code] = await closed;
  expect(code).toBe(0);
});

test("npm run migrate waits for the database, prepares its schema and ends", async () => {
  const database = await createTestDatabase();
  const gateway = await startDatabaseGateway(database.url);
  const db = openDatabase(database.url, { max: 1 });
  onTestFinished(async () => {
    await db.destroy();
    await gateway.close();
    await database.drop();
  });
  await db.raw("drop schema public cascade; create schema public");
  await gateway.set("refuse");
  const child = spawn(process.execPath, ["--disable-warning=ExperimentalWarning", "src/migrate.ts"], {
    cwd: fileURLToPath(new URL("../..", import.meta.url)),
    env: { ...process.env, ...settings, ROLE: "api", LOG_LEVEL: "warn", DATABASE_URL: gateway.url },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "exit");
  const lines = createInterface({ input: child.stdout });
  const [line] = await once(lines, "line");
  expect(line).toContain("waiting for the database");
  await gateway.set("pass");
  expect((await ended)[0]).toBe(0);
  expect(await db("knex_migrations").pluck("name")).toContain("0001-initial");
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
