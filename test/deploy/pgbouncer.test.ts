import { createClient } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { isGivenUp, onBehalfOf } from "../../src/db/connections/call-signal.ts";
import { checkPooler } from "../../src/db/connections/pooler.ts";
import { type Db, openDatabase, PreparedStatementError, rows } from "../../src/db/database.ts";
import { ensurePartitions, listPartitions, PARTITIONED } from "../../src/db/partitions.ts";
import { createTestDatabase } from "../support/database.ts";
import { lock, refused } from "../support/grpc-calls.ts";
import { findPgBouncer, type PgBouncer, type Program, startPgBouncer } from "../support/pgbouncer.ts";
import { startServiceProcess } from "../support/service-process.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

/** Fewer connections to PostgreSQL than the service has in its pool, so that transactions take turns on them. */
const POOL_SIZE = 8;
const DAY_MS = 86_400_000;

const before121 = findPgBouncer(
  "PGBOUNCER_1_18",
  ([major, minor]) => major === 1 && minor < 21,
  "before 1.21",
);
const since121 = findPgBouncer(
  "PGBOUNCER_1_24",
  ([major, minor]) => major > 1 || minor >= 21,
  "1.21 or later",
);

/** A setup of both sides, as docs/operations.md describes it. */
interface Setup {
  name: string;
  program: Program;
  /** Of PgBouncer, beside the size of its pool. */
  pgbouncer: Record<string, string>;
  /** Of the service, beside its addresses. */
  service: Record<string, string>;
  /** Whether the service prepares statements. */
  prepares: boolean;
}

const setups: Setup[] = [
  {
    name: "PgBouncer before 1.21, without prepared statements",
    program: before121,
    pgbouncer: {},
    service: { DATABASE_PREPARED_STATEMENTS: "false" },
    prepares: false,
  },
  {
    name: "PgBouncer since 1.21, with prepared statements",
    program: since121,
    pgbouncer: { max_prepared_statements: "200" },
    service: {},
    prepares: true,
  },
];

/** Tests that need a program: skipped where it is missing, and the title says why. */
function describeWith(program: Program, name: string, tests: (file: string) => void): void {
  if ("missing" in program) describe.skip(`${name} (skipped: ${program.missing})`, () => tests(""));
  else describe(`${name} (${program.version})`, () => tests(program.file));
}

describe.each(setups)("behind $name", (setup) => {
  describeWith(setup.program, "the service", (file) => {
    let service: TestService;
    let pgbouncer: PgBouncer;
    beforeAll(async () => {
      service = await startTestService({ ...WOKEN, ...setup.service, RETENTION_DAYS: "1" }, async (url) => {
        const direct = openDatabase(url, { max: 1 });
        // The service has everything to migrate.
        await direct.raw("drop schema public cascade; create schema public");
        await direct.destroy();
        pgbouncer = await startPgBouncer(file, url, {
          default_pool_size: String(POOL_SIZE),
          ...setup.pgbouncer,
        });
        return { DATABASE_URL: pgbouncer.url, DATABASE_DIRECT_URL: url };
      });
    });
    afterAll(async () => {
      await service?.stop();
      await pgbouncer?.stop();
    });
    afterEach(() => service.removeWebhooks());

    test("makes its tables, and works by way of PgBouncer", async () => {
      expect(await service.db("knex_migrations").pluck("name")).toContain("0001-initial");
      const pools = await pgbouncer.console("show pools");
      expect(pools).toEqual(expect.arrayContaining([expect.objectContaining({ pool_mode: "transaction" })]));
    });

    test("delivers events, retries what failed, and lists it all page by page", async () => {
      const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : 200));
      const webhookId = await service.register(`${receiver.url}/`);
      const events = await Promise.all(Array.from({ length: 100 }, (_, n) => service.publish(BigInt(n + 1))));
      for (const { eventId } of events) {
        const [delivery] = await service.untilFinal(eventId);
        expect(delivery).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 2 });
      }
      expect(receiver.received).toHaveLength(200);
      const listed: string[] = [];
      let pageToken = "";
      do {
        const page = await service.deliveries.listDeliveries({ webhookId, pageSize: 30, pageToken });
        listed.push(...page.deliveries.map(({ eventId }) => eventId));
        pageToken = page.nextPageToken;
      } while (pageToken !== "");
      expect(listed.toSorted()).toEqual(events.map(({ eventId }) => eventId).toSorted());
    });

    test(`prepares ${setup.prepares ? "its hot" : "no"} statements on PgBouncer's connections`, async () => {
      await service.untilFinal((await service.publish()).eventId);
      const db = pool(pgbouncer.url, POOL_SIZE);
      // Each holds one of the connections, until all are held.
      const held = await Promise.all(Array.from({ length: POOL_SIZE }, () => db.transaction()));
      const names = await Promise.all(held.map((trx) => trx("pg_prepared_statements").pluck("name")));
      await Promise.all(held.map((trx) => trx.rollback()));
      expect(names.flat().length > 0).toBe(setup.prepares);
    });

    test("starts no more requests to a webhook that was paused", async () => {
      const receiver = await service.receiver(
        () => new Promise<number>((resolve) => setTimeout(resolve, 20, 200)),
      );
      const webhookId = await service.register(`${receiver.url}/`);
      const events = 2_000;
      const { deliveries } = service;
      await service.webhooks.pauseWebhook({ webhookId });
      await Promise.all(Array.from({ length: events }, (_, n) => service.publish(BigInt(n + 1))));
      await service.webhooks.resumeWebhook({ webhookId });
      await receiver.until((received) => received.length > 50);
      await service.webhooks.pauseWebhook({ webhookId });
      const delivering = async () =>
        (await deliveries.listDeliveries({ webhookId, states: [DeliveryState.DELIVERING] })).deliveries
          .length;
      await expect.poll(delivering).toBe(0);
      const sent = receiver.received.length;
      expect(sent).toBeLessThan(events);
      await service.webhooks.resumeWebhook({ webhookId });
      await receiver.until((received) => received.length === events);
    });

    test("cancels the statement of a call whose caller goes away, and no other", async () => {
      const release = await lock({ context: { db: service.db } }, "webhooks");
      onTestFinished(release);
      const webhooks = createClient(WebhookService, service.transport);
      const gone = new AbortController();
      const calls = Array.from({ length: 3 }, () => webhooks.listWebhooks({}));
      const call = refused(webhooks.listWebhooks({}, { signal: gone.signal }));
      const waiting = async () =>
        (
          await rows(
            service.db,
            `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
              and query like 'select w.id, w.revision, %'`,
          )
        ).length;
      await expect.poll(waiting).toBe(4);
      gone.abort();
      await call;
      await expect.poll(waiting).toBe(3);
      await release();
      expect((await Promise.all(calls)).map(({ webhooks: found }) => found)).toEqual([[], [], []]);
    });

    test("makes partitions and drops old ones", async () => {
      const old = new Date(Date.now() - 40 * DAY_MS);
      await ensurePartitions(service.db, 1, [old]);
      await service.db.raw(`drop table ${(await partitions(service.db)).at(-1)}`);
      expect((await partitions(service.db)).filter(isOf(old))).toHaveLength(PARTITIONED.length);
      const made = (await partitions(service.db)).length;
      // The ports of the connections over which tables are dropped from now on.
      await service.db.raw(`create table drops (port int);
        create function note_drop() returns event_trigger language plpgsql as
          'begin insert into public.drops values (inet_client_port()); end';
        create event trigger note_drop on ddl_command_start when tag in ('DROP TABLE') execute function note_drop()`);
      await service.temporal.schedule.getHandle(service.retentionScheduleId).trigger();
      // The old ones go, and the one that was missing is there again.
      await expect
        .poll(async () => (await partitions(service.db)).length)
        .toBe(made - PARTITIONED.length + 1);
      expect((await partitions(service.db)).filter(isOf(old))).toEqual([]);
      // A lock time-out of its own needs a connection that nobody else shares.
      const pooled = (await pgbouncer.console("show servers")).map(({ local_port }) => Number(local_port));
      const ports: number[] = await service.db("drops").pluck("port");
      expect(ports).toHaveLength(PARTITIONED.length);
      expect(pooled.length).toBeGreaterThan(0);
      expect(ports.filter((port) => pooled.includes(port))).toEqual([]);
    });
  });
});

const partitions = async (db: Db) =>
  (await Promise.all(PARTITIONED.map((table) => listPartitions(db, table)))).flat().map(({ name }) => name);

const isOf = (day: Date) => (name: string) =>
  name.includes(day.toISOString().slice(0, 10).replaceAll("-", ""));

/** Starts PgBouncer in front of a database of the test's own. */
async function startOwn(file: string, settings: Record<string, string>) {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  const pgbouncer = await startPgBouncer(file, database.url, settings);
  onTestFinished(() => pgbouncer.stop());
  return { pgbouncer, direct: database.url };
}

/** Opens a pool for the test. */
function pool(url: string, max = 5): Db {
  const db = openDatabase(url, { max });
  onTestFinished(() => db.destroy());
  return db;
}

describe.each(setups)("the calls of $name", (setup) => {
  describeWith(setup.program, "that are given up", (file) => {
    /** Runs a statement for a call that can be given up. */
    function startCall(db: Db, sql: string) {
      const call = new AbortController();
      const ended = onBehalfOf(call.signal, () => rows(db, sql)).then(
        () => "completed",
        (error: unknown) => (isGivenUp(error) ? "cancelled" : error),
      );
      return { giveUp: () => call.abort(), ended };
    }
    const active = async (db: Db, sql: string) =>
      (await db("pg_stat_activity").where({ query: sql, state: "active" })).length;

    test("are cancelled over TLS", async () => {
      const { pgbouncer, direct } = await startOwn(file, {
        ...setup.pgbouncer,
        client_tls_sslmode: "require",
      });
      const db = pool(`${pgbouncer.url}?sslmode=verify-full&sslrootcert=${pgbouncer.authorityFile}`);
      const call = startCall(db, "select pg_sleep(60)");
      await expect.poll(() => active(pool(direct, 1), "select pg_sleep(60)")).toBe(1);
      call.giveUp();
      expect(await call.ended).toBe("cancelled");
    });

    test("are cancelled once they have begun, when they waited for a server's connection before", async () => {
      const { pgbouncer, direct } = await startOwn(file, { ...setup.pgbouncer, default_pool_size: "1" });
      const db = pool(pgbouncer.url);
      const holding = await db.transaction();
      await holding.raw("select 1");
      const call = startCall(db, "select pg_sleep(60)");
      const waiting = async () =>
        (await pgbouncer.console("show pools")).map(({ cl_waiting }) => Number(cl_waiting));
      await expect.poll(waiting).toContain(1);
      call.giveUp();
      await holding.commit();
      expect(await call.ended).toBe("cancelled");
      expect(await active(pool(direct, 1), "select pg_sleep(60)")).toBe(0);
    });
  });
});

describeWith(before121, "PgBouncer before 1.21", (file) => {
  test("stops the start while statements are prepared, and the error says what to set", async () => {
    const { pgbouncer, direct } = await startOwn(file, {});
    const settings = {
      ROLE: "api",
      DATABASE_URL: pgbouncer.url,
      DATABASE_DIRECT_URL: direct,
      SECRET_KEY: "0f".repeat(32),
    };
    await expect(startServiceProcess(settings)).rejects.toThrow(
      /ended with 1:[\s\S]*Startup failed: DATABASE_URL leads through a pooler .* set DATABASE_PREPARED_STATEMENTS=false/,
    );
    await expect(checkPooler(pgbouncer.url, direct, false)).resolves.toBeUndefined();
  });

  test("stops the start without another address of PostgreSQL, and the error says what to set", async () => {
    const { pgbouncer } = await startOwn(file, {});
    await expect(checkPooler(pgbouncer.url, pgbouncer.url, false)).rejects.toThrow(
      /^DATABASE_URL leads through a pooler .* set DATABASE_DIRECT_URL/,
    );
  });

  test("carries everything in session mode", async () => {
    const { pgbouncer } = await startOwn(file, { pool_mode: "session" });
    await expect(checkPooler(pgbouncer.url, pgbouncer.url, true)).resolves.toBeUndefined();
  });

  test("fails prepared statements with an error that says what to set", async () => {
    const { pgbouncer } = await startOwn(file, {});
    const db = pool(pgbouncer.url);
    const errors: unknown[] = [];
    const ask = () =>
      rows(db, "select :n::int as n", { n: 1 }, { prepare: "of_pooler" }).catch((error) =>
        errors.push(error),
      );
    while (errors.length === 0) await Promise.all(Array.from({ length: 10 }, ask));
    for (const error of errors) expect(error).toBeInstanceOf(PreparedStatementError);
    expect((errors[0] as Error).message).toContain("set DATABASE_PREPARED_STATEMENTS=false");
  });
});

describeWith(since121, "PgBouncer since 1.21", (file) => {
  test("stops the start when it is told to keep no prepared statements", async () => {
    const { pgbouncer, direct } = await startOwn(file, { max_prepared_statements: "0" });
    await expect(checkPooler(pgbouncer.url, direct, true)).rejects.toThrow(
      /DATABASE_PREPARED_STATEMENTS=false/,
    );
  });

  test("keeps prepared statements, and one whose result has got another column is prepared again", async () => {
    const { pgbouncer, direct } = await startOwn(file, { max_prepared_statements: "200" });
    await expect(checkPooler(pgbouncer.url, direct, true)).resolves.toBeUndefined();
    const db = pool(pgbouncer.url);
    await db.raw("create table changing (n int)");
    await db.raw("insert into changing values (1)");
    const ask = () => rows(db, "select * from changing", {}, { prepare: "of_changing" });
    expect(await ask()).toEqual([{ n: 1 }]);
    for (const column of ["a", "b"]) {
      await db.raw(`alter table changing add column ${column} int default 2`);
      expect(await ask()).toHaveProperty([0, column], 2);
    }
  });
});
