import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import { createServer, connect as openSocket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcTransport } from "@connectrpc/connect-node";
import { Agent } from "undici";
import { expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import { Health, HealthCheckResponse_ServingStatus as Status } from "../../../gen/health/v1/health_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { migrate } from "../../../src/db/migrate.ts";
import { startEmbeddedPostgres } from "../../../src/embedded/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../../src/embedded/postgres/postgres-home.ts";
import { anyPort } from "../../support/any-port.ts";
import { grpc } from "../../support/clients.ts";
import { createTestDatabase } from "../../support/database.ts";
import { startDatabaseGateway } from "../../support/database-gateway.ts";
import { sendRaw } from "../../support/raw-request.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

async function started(options: Parameters<typeof startTestApi>[0] = {}): Promise<TestApi> {
  const api = await startTestApi(options);
  onTestFinished(() => api.stop());
  return api;
}

const probe = async (api: TestApi, path: string) => {
  const answer = await fetch(`${api.url}${path}`);
  return { status: answer.status, body: await answer.json() };
};

test("with a certificate one port carries REST, Connect over HTTP/1.1, and gRPC and Connect over HTTP/2", async () => {
  const authority = await createLocalAuthority();
  const tls = await authority.issue(["localhost", "127.0.0.1"]);
  const api = await started({ tls });
  expect(api.grpcPort).toBeNull();
  expect(api.url).toBe(`https://localhost:${api.httpPort}`);
  const baseUrl = api.url;
  const nodeOptions = { ca: authority.cert };
  const headers = { "X-Service-Key": api.adminKey };

  for (const allowH2 of [false, true]) {
    const dispatcher = new Agent({ connect: nodeOptions, allowH2 });
    const url = "https://receiver.example/tls";
    const answer = await dispatcher.request({
      origin: baseUrl,
      path: "/api/webhook",
      method: "POST",
      headers: { ...headers, "content-type": "application/json" },
      body: JSON.stringify({ process: 1, url }),
    });
    expect(answer.statusCode).toBe(200);
    expect(await answer.body.json()).toMatchObject({ Success: true, Data: { Url: url } });
    const nowhere = await dispatcher.request({ origin: baseUrl, path: "/nope", method: "GET" });
    expect([nowhere.statusCode, await nowhere.body.json()]).toMatchObject([404, { Success: false }]);
    await dispatcher.close();
  }
  const transports = [
    createGrpcTransport({ baseUrl, nodeOptions }),
    createConnectTransport({ baseUrl, httpVersion: "2", nodeOptions }),
    createConnectTransport({ baseUrl, httpVersion: "1.1", nodeOptions }),
  ];
  for (const transport of transports) {
    const { webhooks } = await createClient(WebhookService, transport).listWebhooks({}, { headers });
    expect(webhooks).toHaveLength(1);
    const refused = await createClient(WebhookService, transport).listWebhooks({}).catch(ConnectError.from);
    expect((refused as ConnectError).code).toBe(Code.Unauthenticated);
  }
  const plain = await sendRaw(api.httpPort, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").catch(() => "");
  expect(plain).not.toContain("200 OK");
});

test("a body that cannot be read is refused over HTTP/2 without a warning on stderr", async () => {
  const warnings: Error[] = [];
  const note = (warning: Error) => warnings.push(warning);
  process.on("warning", note);
  onTestFinished(() => {
    process.off("warning", note);
  });
  const authority = await createLocalAuthority();
  const api = await started({ tls: await authority.issue(["localhost"]) });
  const dispatcher = new Agent({ connect: { ca: authority.cert }, allowH2: true });
  onTestFinished(() => dispatcher.close());
  const answer = await dispatcher.request({
    origin: api.url,
    path: "/api/webhook",
    method: "POST",
    headers: { "X-Service-Key": api.adminKey, "content-type": "application/json" },
    body: "{",
  });
  expect([answer.statusCode, await answer.body.json()]).toMatchObject([400, { Success: false }]);
  expect(warnings.filter(({ message }) => message.includes("connection header"))).toEqual([]);
});

test("/healthz answers while the process lives, /readyz says why it is not ready", async () => {
  const reasons: string[] = [];
  const api = await started({ readiness: async () => reasons });
  expect(await probe(api, "/healthz")).toEqual({ status: 200, body: { status: "alive" } });
  expect(await probe(api, "/readyz")).toEqual({ status: 200, body: { status: "ready" } });
  reasons.push("the delivery worker is starting");
  await expect
    .poll(() => probe(api, "/readyz"))
    .toEqual({
      status: 503,
      body: { status: "not ready", reasons: ["the delivery worker is starting"] },
    });
  expect((await probe(api, "/healthz")).status).toBe(200);
});

test("/readyz answers 200 while calls hold all connections of the pool, and 503 once the database hangs", async () => {
  const database = await createTestDatabase();
  const gateway = await startDatabaseGateway(database.url);
  onTestFinished(async () => {
    await gateway.close();
    await database.drop();
  });
  const api = await started({ databaseUrl: gateway.url });
  const { client } = api.context.db;
  const taken = await Promise.all(Array.from({ length: 10 }, () => client.acquireConnection()));
  onTestFinished(async () => {
    gateway.resume();
    await Promise.all(taken.map((connection) => client.releaseConnection(connection)));
  });
  expect(await probe(api, "/readyz")).toEqual({ status: 200, body: { status: "ready" } });
  gateway.hang();
  await expect
    .poll(() => probe(api, "/readyz"))
    .toEqual({
      status: 503,
      body: { status: "not ready", reasons: ["the database does not respond"] },
    });
});

test("with the database killed, calls are UNAVAILABLE and /readyz says so; with it back, all is well again", async () => {
  const dataDir = await mkdtemp(path.join(tmpdir(), "webhook-test-outage-"));
  onTestFinished(() => removeDataDir(dataDir));
  const postgres = await startEmbeddedPostgres({ dataDir, progress: () => {}, port: await anyPort() });
  onTestFinished(() => postgres.stop());
  await migrate(postgres.url);
  const api = await started({ databaseUrl: postgres.url });
  expect((await probe(api, "/readyz")).status).toBe(200);

  postgres.kill();
  await expect
    .poll(() => probe(api, "/readyz"))
    .toEqual({
      status: 503,
      body: { status: "not ready", reasons: ["the database does not respond"] },
    });
  expect((await probe(api, "/healthz")).status).toBe(200);
  const { status, headers, envelope } = await api.rest("GET", "/api/webhook/list");
  expect([status, headers.get("Retry-After")]).toEqual([503, "1"]);
  expect(envelope).toEqual({ Success: false, Data: null, Warnings: ["the database is unavailable; retry"] });
  const refused = await createClient(WebhookService, grpc(api)).listWebhooks({}).catch(ConnectError.from);
  expect(refused).toMatchObject({ code: Code.Unavailable, rawMessage: "the database is unavailable; retry" });
  expect((await createClient(Health, grpc(api)).check({})).status).toBe(Status.NOT_SERVING);

  await postgres.restart();
  await expect.poll(async () => (await probe(api, "/readyz")).status).toBe(200);
  expect((await api.rest("GET", "/api/webhook/list")).status).toBe(200);
});

test("a process that only delivers has /healthz and /readyz, and neither REST nor gRPC", async () => {
  const api = await started({ services: false });
  expect(api.grpcPort).toBeNull();
  expect((await probe(api, "/readyz")).status).toBe(200);
  const { status, envelope } = await api.rest("GET", "/api/webhook/list");
  expect([status, envelope.Warnings]).toEqual([
    404,
    ["no such path: /api/webhook/list; this process only delivers; call a process with ROLE=api or ROLE=all"],
  ]);
});

test("a port in use is an error that names the port and its variable", async () => {
  const taken = createServer().listen(0, "127.0.0.1");
  await once(taken, "listening");
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as { port: number };
  await expect(startTestApi({ httpPort: port })).rejects.toThrow(
    `port ${port} is in use by another program; set HTTP_PORT`,
  );
  await expect(startTestApi({ grpcPort: port })).rejects.toThrow(
    `port ${port} is in use by another program; set GRPC_PORT`,
  );
});

test("stopping finishes what is in flight, ends watches and idle connections, and accepts nothing more", async () => {
  const api = await startTestApi();
  const { db } = api.context;
  const webhooks = createClient(WebhookService, grpc(api));
  await webhooks.listWebhooks({});
  const idle = openSocket(api.httpPort, "127.0.0.1");
  await once(idle, "connect");
  idle.write(`GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n`);
  await once(idle, "data");
  const idleClosed = once(idle, "close");
  const watched: Status[] = [];
  const watch = (async () => {
    for await (const { status } of createClient(Health, grpc(api)).watch({})) watched.push(status);
  })().catch(ConnectError.from);
  await expect.poll(() => watched).toEqual([Status.SERVING]);

  // Both calls wait for the lock until the service has begun to stop.
  const lock = await db.transaction();
  await lock.raw("lock table webhooks in access exclusive mode");
  const inFlight = [api.rest("GET", "/api/webhook/list"), webhooks.listWebhooks({})] as const;
  const waiting =
    "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
  await expect.poll(async () => (await db.raw(waiting)).rows[0].n).toBe(2);
  const stopped = api.stop();
  await expect
    .poll(() =>
      fetch(api.url).then(
        () => "accepted",
        () => "refused",
      ),
    )
    .toBe("refused");
  await lock.rollback();

  expect((await inFlight[0]).status).toBe(200);
  expect((await inFlight[1]).webhooks).toEqual([]);
  expect(await watch).toMatchObject({ code: Code.Unavailable });
  expect(watched).toEqual([Status.SERVING, Status.NOT_SERVING]);
  await idleClosed;
  await stopped;
});

test("what is not HTTP/2 on the gRPC port ends its own connection only", async () => {
  const api = await started();
  await sendRaw(api.grpcPort as number, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").catch(() => "");
  expect((await createClient(WebhookService, grpc(api)).listWebhooks({})).webhooks).toEqual([]);
});

test("a request that stays incomplete does not keep the service from stopping", async () => {
  const api = await startTestApi({ drainMs: 200 });
  const socket = openSocket(api.httpPort, "127.0.0.1");
  socket.on("error", () => {});
  await once(socket, "connect");
  socket.write("POST /api/webhook HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n");
  // Not `once`, which an error ends: the service may reset the connection.
  const closed = new Promise((resolve) => void socket.once("close", resolve));
  await api.stop();
  await closed;
});
