import { once } from "node:events";
import { mkdtemp } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
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

test("what is not HTTP/2 on the gRPC port ends its own connection only", async () => {
  const api = await started();
  await sendRaw(api.grpcPort as number, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").catch(() => "");
  expect((await createClient(WebhookService, grpc(api)).listWebhooks({})).webhooks).toEqual([]);
});
