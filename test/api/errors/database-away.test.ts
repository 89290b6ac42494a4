import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import pino from "pino";
import { describe, expect, type TestContext, test } from "vitest";
import { Health, HealthCheckResponse_ServingStatus } from "../../../gen/health/v1/health_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import type { Db } from "../../../src/db/database.ts";
import { openDatabase } from "../../../src/db/database.ts";
import { connect, PROTOCOLS } from "../../support/clients.ts";
import { createTestDatabase } from "../../support/database.ts";
import { type DatabaseGateway, startDatabaseGateway } from "../../support/database-gateway.ts";
import { startTestApi, type TestApi } from "../../support/test-api.ts";

interface Parts {
  api: TestApi;
  gateway: DatabaseGateway;
  /** Not by way of the gateway. */
  direct: Db;
  /** Why the database was away, by the log: codes of errors, or their texts where they have none. */
  causes: string[];
}

/** Each test has its own parts, because all of them run at the same time: most of them wait. */
async function start({ onTestFinished }: TestContext): Promise<Parts> {
  const database = await createTestDatabase();
  const gateway = await startDatabaseGateway(database.url);
  const direct = openDatabase(database.url, { max: 2 });
  const causes: string[] = [];
  const log = pino(
    { level: "warn" },
    {
      write(line: string) {
        const { msg, err } = JSON.parse(line) as { msg: string; err: { code?: string; message: string } };
        if (msg === "the database is unavailable") causes.push(err.code ?? err.message);
      },
    },
  );
  const api = await startTestApi({ databaseUrl: gateway.url, log });
  onTestFinished(async () => {
    await gateway.set("pass");
    await api.stop();
    await gateway.close();
    await direct.destroy();
    await database.drop();
  });
  return { api, gateway, direct, causes };
}

const AWAY = { Success: false, Data: null, Warnings: ["the database is unavailable; retry"] };

/** What every kind of caller is told while the database is away: one with a key, one with a wrong key, each protocol. */
async function expectAway(api: TestApi): Promise<void> {
  for (const key of [api.adminKey, `whk_${randomUUID()}`]) {
    const { status, headers, envelope } = await api.rest("GET", "/api/webhook/list", { key });
    expect([status, headers.get("Retry-After"), envelope]).toEqual([503, "1", AWAY]);
  }
  // Refused before the body is read, since the key comes first.
  const unread = await api.rest("POST", "/api/webhook", { raw: { body: "{", type: "application/json" } });
  expect([unread.status, unread.headers.get("Retry-After"), unread.envelope]).toEqual([503, "1", AWAY]);
  for (const [name, transport] of PROTOCOLS) {
    const call = createClient(WebhookService, transport(api)).listWebhooks({});
    expect(await call.catch(ConnectError.from), name).toMatchObject({ code: Code.Unavailable });
  }
}

const terminate = (db: Db) =>
  db.raw(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = 'test'",
  );

describe.concurrent("while the database is away, REST answers 503 with Retry-After and the others UNAVAILABLE:", () => {
  test("nobody listens at its address", async (context) => {
    const { api, gateway, causes } = await start(context);
    await gateway.set("refuse");
    await expectAway(api);
    expect(causes).toContain("ECONNREFUSED");
  });

  test("it ends connections as soon as they are made", async (context) => {
    const { api, gateway, causes } = await start(context);
    await gateway.set("hang up");
    await expectAway(api);
    expect(causes).toContain("Connection terminated unexpectedly");
  });

  test("it accepts connections and answers nothing", async (context) => {
    const { api, gateway } = await start(context);
    const health = createClient(Health, connect(api));
    gateway.hang();
    await expectAway(api);
    expect(await health.check({})).toMatchObject({ status: HealthCheckResponse_ServingStatus.NOT_SERVING });
    gateway.resume();
    await context.expect.poll(async () => (await api.rest("GET", "/api/webhook/list")).status).toBe(200);
  });

  test("it is starting", async (context) => {
    const { api, gateway, causes } = await start(context);
    await gateway.set("starting");
    await expectAway(api);
    expect(causes).toContain("57P03");
  });

  test("it ends a connection that a request waits on", async (context) => {
    const { api, direct, causes } = await start(context);
    const lock = await direct.transaction();
    await lock.raw("lock table webhooks in access exclusive mode");
    const waiting = api.rest("GET", "/api/webhook/list");
    const blocked =
      "select count(*)::int as n from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    await context.expect.poll(async () => (await direct.raw(blocked)).rows[0].n).toBe(1);
    await terminate(direct);
    const { status, headers, envelope } = await waiting;
    expect([status, headers.get("Retry-After"), envelope]).toEqual([503, "1", AWAY]);
    expect(causes).toContain("57P01");
    await lock.rollback();
  });

  test("it has no connection left for the service", async (context) => {
    const { direct, causes, api } = await start(context);
    const role = `crowded_${randomUUID().replaceAll("-", "")}`;
    await direct.raw(`create role ${role} login password 'crowded' connection limit 0`);
    const url = new URL(api.databaseUrl);
    url.username = role;
    url.password = "crowded";
    const db = openDatabase(url.href, { max: 1 });
    try {
      // The API's own connections end, and the next ones are of a role that may have none.
      api.context.db.client.connectionSettings = db.client.connectionSettings;
      await terminate(direct);
      await expectAway(api);
      expect(causes).toContain("53300");
    } finally {
      await db.destroy();
      await direct.raw(`drop role ${role}`);
    }
  });

  test("all connections of the pool are taken for longer than callers wait for one", async (context) => {
    const { api, causes } = await start(context);
    const { client } = api.context.db;
    const taken = await Promise.all(Array.from({ length: 10 }, () => client.acquireConnection()));
    const { status, headers, envelope } = await api.rest("GET", "/api/webhook/list");
    expect([status, headers.get("Retry-After"), envelope]).toEqual([503, "1", AWAY]);
    expect(causes.join()).toContain("Timeout acquiring a connection");
    await Promise.all(taken.map((connection) => client.releaseConnection(connection)));
  });

  test("it only reads, and the request writes", async (context) => {
    const { api, direct, causes } = await start(context);
    await direct.raw(
      "do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$",
    );
    await terminate(direct);
    // A pooled connection may learn only by its next query that it was terminated.
    await context.expect.poll(async () => (await api.rest("GET", "/api/webhook/list")).status).toBe(200);
    const json = { process: 1, url: "https://receiver.example/read-only" };
    const { status, headers, envelope } = await api.rest("POST", "/api/webhook", { json });
    expect([status, headers.get("Retry-After"), envelope]).toEqual([503, "1", AWAY]);
    expect(causes).toContain("25006");
  });
});

test.concurrent("a call that waits long for a database that answers others is not refused", async (context) => {
  const { api, direct } = await start(context);
  const lock = await direct.transaction();
  await lock.raw("lock table webhooks in access exclusive mode");
  const waiting = api.rest("GET", "/api/webhook/list");
  // Longer than a database that does not answer is waited for.
  await wait(4_000);
  await lock.rollback();
  expect((await waiting).status).toBe(200);
});

test.concurrent("with the database back, the same requests are answered", async (context) => {
  const { api, gateway } = await start(context);
  await gateway.set("refuse");
  expect((await api.rest("GET", "/api/webhook/list")).status).toBe(503);
  await gateway.set("pass");
  expect((await api.rest("GET", "/api/webhook/list")).status).toBe(200);
});
