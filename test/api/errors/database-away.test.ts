import { randomUUID } from "node:crypto";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { Health, HealthCheckResponse_ServingStatus as Status } from "../../../gen/health/v1/health_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { openDatabase } from "../../../src/lib/pg/database.ts";
import { LivenessProbe } from "../../../src/lib/pg/liveness.ts";
import { PROTOCOLS } from "../../support/clients.ts";
import { createTestDatabase } from "../../support/database.ts";
import { startDatabaseGateway } from "../../support/database-gateway.ts";
import { lock, waitingQueries } from "../../support/grpc-calls.ts";
import { startTestApi } from "../../support/test-api.ts";

const database = await createTestDatabase();
const gateway = await startDatabaseGateway(database.url);
/** Not by way of the gateway. */
const direct = openDatabase(database.url, { max: 2 });
/** Why the database was away, by the log: codes of errors, or their texts where they have none. */
let causes: string[] = [];
const log = pino(
  { level: "warn" },
  {
    write(line: string) {
      const { msg, err } = JSON.parse(line) as { msg: string; err: { code?: string; message: string } };
      if (msg === "the database is unavailable") causes.push(err.code ?? err.message);
    },
  },
);
/** Why the service is not ready, beside its database. */
let reasons: string[] = [];
const api = await startTestApi({ databaseUrl: gateway.url, log, readiness: async () => reasons });
const list = (key = api.adminKey) => api.rest("GET", "/api/webhook/list", { key });
const terminate = () =>
  direct.raw(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'test'",
  );

beforeEach(async () => {
  await gateway.set("pass");
  // A pooled connection may learn only by its next query that it was ended.
  await expect.poll(async () => (await list()).status).toBe(200);
  causes = [];
  reasons = [];
});
afterAll(async () => {
  await gateway.set("pass");
  await api.stop();
  await gateway.close();
  await direct.destroy();
  await database.drop();
});

const AWAY = { Success: false, Data: null, Warnings: ["the database is unavailable; retry"] };

async function expectAnsweredAway(answer: ReturnType<typeof api.rest>): Promise<void> {
  const { status, headers, envelope } = await answer;
  expect([status, headers.get("Retry-After"), envelope]).toEqual([503, "1", AWAY]);
}

/** What every kind of caller is told while the database is away: one with a key, one with a wrong key, each protocol. */
async function expectAway(): Promise<void> {
  await Promise.all([
    expectAnsweredAway(list()),
    expectAnsweredAway(list(`whk_${randomUUID()}`)),
    // Refused before the body is read, since the key comes first.
    expectAnsweredAway(api.rest("POST", "/api/webhook", { raw: { body: "{", type: "application/json" } })),
    ...PROTOCOLS.map(async ([name, transport]) => {
      const call = createClient(WebhookService, transport(api)).listWebhooks({});
      expect(await call.catch(ConnectError.from), name).toMatchObject({ code: Code.Unavailable });
    }),
  ]);
}

describe("while the database is away, REST answers 503 with Retry-After and the others UNAVAILABLE:", () => {
  test.each([
    ["nobody listens at its address", "refuse", /^ECONNREFUSED$/],
    // Before or after the client's first bytes.
    [
      "it ends connections as soon as they are made",
      "hang up",
      /^(Connection terminated unexpectedly|ECONNRESET|EPIPE)$/,
    ],
    ["it is starting", "starting", /^57P03$/],
  ] as const)("%s", async (_what, mode, cause) => {
    await gateway.set(mode);
    await expectAway();
    expect(causes).toContainEqual(expect.stringMatching(cause));
    await gateway.set("pass");
    expect((await list()).status).toBe(200);
  });

  test("it accepts connections and answers nothing", async () => {
    gateway.hang();
    await expectAway();
    expect(await api.client(Health).check({})).toMatchObject({ status: Status.NOT_SERVING });
    gateway.resume();
    await expect.poll(async () => (await list()).status).toBe(200);
  });

  test("it ends a connection that a request waits on", async () => {
    const release = await lock({ context: { db: direct } }, "webhooks");
    const waiting = list();
    await expect.poll(() => waitingQueries({ context: { db: direct } })).toBe(1);
    await terminate();
    await expectAnsweredAway(waiting);
    expect(causes).toContain("57P01");
    await release();
  });

  test("all connections of the pool are in use for longer than a caller waits for one", async () => {
    const { client } = api.context.db;
    const { pool } = client;
    const taken = await Promise.all(Array.from({ length: pool.max }, () => client.acquireConnection()));
    const usual = pool.acquireTimeoutMillis;
    pool.acquireTimeoutMillis = 100;
    await expectAnsweredAway(list());
    expect(causes.join()).toContain("Timeout acquiring a connection");
    pool.acquireTimeoutMillis = usual;
    await Promise.all(taken.map((connection) => client.releaseConnection(connection)));
  });
});

test("a call that waits long for a database that answers others is not refused", async () => {
  const answers = vi.spyOn(LivenessProbe.prototype, "answers");
  onTestFinished(() => answers.mockRestore());
  const release = await lock({ context: { db: direct } }, "webhooks");
  const waiting = list();
  // The database has been asked whether it answers, twice.
  await expect.poll(() => answers.mock.settledResults.map(({ value }) => value)).toEqual([true, true]);
  await release();
  expect((await waiting).status).toBe(200);
});

describe("/readyz", () => {
  const probe = async (path: string) => {
    const answer = await fetch(`${api.url}${path}`);
    return { status: answer.status, body: await answer.json() };
  };
  const READY = { status: 200, body: { status: "ready" } };
  const notReady = (...all: string[]) => ({ status: 503, body: { status: "not ready", reasons: all } });

  test("says why the service is not ready, while /healthz answers that it lives", async () => {
    expect(await probe("/readyz")).toEqual(READY);
    reasons = ["the delivery worker is starting"];
    await expect.poll(() => probe("/readyz")).toEqual(notReady("the delivery worker is starting"));
    expect(await probe("/healthz")).toEqual({ status: 200, body: { status: "alive" } });
  });

  test("answers 200 while calls hold all connections of the pool, and 503 while the database hangs", async () => {
    const { client } = api.context.db;
    const taken = await Promise.all(
      Array.from({ length: client.pool.max }, () => client.acquireConnection()),
    );
    await expect.poll(() => probe("/readyz")).toEqual(READY);
    gateway.hang();
    await expect.poll(() => probe("/readyz")).toEqual(notReady("the database does not respond"));
    expect((await probe("/healthz")).status).toBe(200);
    gateway.resume();
    await expect.poll(() => probe("/readyz")).toEqual(READY);
    await Promise.all(taken.map((connection) => client.releaseConnection(connection)));
  });

  test("answers 503 while the database takes no writes, and calls that write are refused until it does", async () => {
    const name = new URL(database.url).pathname.slice(1);
    const setReadOnly = (value: string) =>
      direct.raw(
        `begin read write; alter database ${name} set default_transaction_read_only = ${value}; commit`,
      );
    onTestFinished(() => void setReadOnly("off"));
    const register = () =>
      api.rest("POST", "/api/webhook", { json: { process: 1, url: "https://read-only.example/" } });
    await setReadOnly("on");
    await terminate();
    await expect.poll(() => probe("/readyz")).toEqual(notReady("the database takes no writes"));
    await expectAnsweredAway(register());
    expect(causes).toContain("25006");
    // Reads go on.
    expect((await list()).status).toBe(200);
    await setReadOnly("off");
    await expect.poll(async () => (await register()).status).toBe(200);
    await expect.poll(() => probe("/readyz")).toEqual(READY);
  });
});
