import { setTimeout } from "node:timers/promises";
import { createClient } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../gen/webhook/v1/webhook_pb.ts";
import { isGivenUp, onBehalfOf } from "../../src/lib/pg/call-signal.ts";
import { type Db, openDatabase, PreparedStatementError, rows } from "../../src/lib/pg/database.ts";
import { checkPooler } from "../../src/lib/pg/pooler.ts";
import { ensurePartitions, listPartitions, PARTITIONED } from "../../src/schema/partitions.ts";
import { createTestDatabase } from "../support/database.ts";
import { lock, refused } from "../support/grpc-calls.ts";
import { startServiceProcess } from "../support/service-process.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";
import { findPgBouncer, type PgBouncer, startPgBouncer } from "./pgbouncer.ts";

/** Fewer connections to PostgreSQL than the service has in its pool, so that transactions take turns on them. */
const POOL_SIZE = 8;
const DAY_MS = 86_400_000;

const before121 = findPgBouncer("PGBOUNCER_1_18", "before");
const since121 = findPgBouncer("PGBOUNCER_1_24", "since");

type Settings = Record<string, string>;
/** Both sides as docs/operations.md describes them: settings of PgBouncer and of the service. */
const setups = [
  {
    ...before121,
    pgbouncer: {} as Settings,
    service: { DATABASE_PREPARED_STATEMENTS: "false" } as Settings,
    prepares: false,
  },
  {
    ...since121,
    pgbouncer: { max_prepared_statements: "200" } as Settings,
    service: {} as Settings,
    prepares: true,
  },
];

/** Starts PgBouncer in front of a database of the test's own. */
async function startOwn(file: string, settings: Settings) {
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

for (const setup of setups) {
  describe.skipIf(setup.isMissing)(`the service behind ${setup.name}`, () => {
    let service: TestService;
    let pgbouncer: PgBouncer;
    beforeAll(async () => {
      service = await startTestService({ ...WOKEN, ...setup.service, RETENTION_DAYS: "1" }, async (url) => {
        const direct = openDatabase(url, { max: 1 });
        // The service has everything to migrate.
        await direct.raw("drop schema public cascade; create schema public");
        await direct.destroy();
        pgbouncer = await startPgBouncer(setup.file, url, {
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

    test("makes its tables, delivers events, retries what failed, and prepares statements if it may", async () => {
      const pools = await pgbouncer.console("show pools");
      expect(pools).toContainEqual(expect.objectContaining({ pool_mode: "transaction" }));
      const receiver = await service.receiver(({ attempt }) => (attempt === 1 ? 503 : 200));
      await service.register(`${receiver.url}/`);
      const events = await Promise.all(Array.from({ length: 100 }, (_, n) => service.publish(BigInt(n + 1))));
      for (const { eventId } of events)
        expect(await service.untilFinal(eventId)).toMatchObject([
          { state: DeliveryState.DELIVERED, attemptCount: 2 },
        ]);
      expect(receiver.received).toHaveLength(200);
      const db = pool(pgbouncer.url, POOL_SIZE);
      // Each holds one of PgBouncer's connections, until all are held.
      const held = await Promise.all(Array.from({ length: POOL_SIZE }, () => db.transaction()));
      const names = await Promise.all(held.map((trx) => trx("pg_prepared_statements").pluck("name")));
      await Promise.all(held.map((trx) => trx.rollback()));
      expect(names.flat().length > 0).toBe(setup.prepares);
    });

    test("starts no more requests to a webhook that was paused", async () => {
      const events = 2_000;
      const receiver = await service.receiver(() => setTimeout(20, 200));
      const webhookId = await service.register(`${receiver.url}/`);
      await service.webhooks.pauseWebhook({ webhookId });
      await Promise.all(Array.from({ length: events }, (_, n) => service.publish(BigInt(n + 1))));
      await service.webhooks.resumeWebhook({ webhookId });
      await receiver.until((received) => received.length > 50);
      await service.webhooks.pauseWebhook({ webhookId });
      const inFlight = { webhookId, states: [DeliveryState.DELIVERING] };
      await expect
        .poll(async () => (await service.deliveries.listDeliveries(inFlight)).deliveries)
        .toEqual([]);
      expect(receiver.received.length).toBeLessThan(events);
      await service.webhooks.resumeWebhook({ webhookId });
      await receiver.until((received) => received.length === events);
    });

    test("cancels the statement of a call whose caller disconnects, and no other", async () => {
      const release = await lock({ context: { db: service.db } }, "webhooks");
      onTestFinished(release);
      const webhooks = createClient(WebhookService, service.transport);
      const gone = new AbortController();
      // With the one that is given up, as many as a key's turns allow at once.
      const calls = Array.from({ length: 2 }, () => webhooks.listWebhooks({}));
      const call = refused(webhooks.listWebhooks({}, { signal: gone.signal }));
      const waiting = async () =>
        (
          await rows(
            service.db,
            `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'
              and query like 'select w.id, w.revision, %'`,
          )
        ).length;
      await expect.poll(waiting).toBe(3);
      gone.abort();
      await call;
      await expect.poll(waiting).toBe(2);
      await release();
      expect((await Promise.all(calls)).map(({ webhooks: found }) => found)).toEqual([[], []]);
    });

    test("makes partitions and drops old ones, over connections that nobody else shares", async () => {
      const partitions = async () => {
        const found = await Promise.all(PARTITIONED.map((table) => listPartitions(service.db, table)));
        return found.flat().map(({ name }) => name);
      };
      const old = new Date(Date.now() - 40 * DAY_MS);
      const isOld = (name: string) => name.includes(old.toISOString().slice(0, 10).replaceAll("-", ""));
      await ensurePartitions(service.db, 1, [old]);
      await service.db.raw(`drop table ${(await partitions()).at(-1)}`);
      expect((await partitions()).filter(isOld)).toHaveLength(PARTITIONED.length);
      const made = (await partitions()).length;
      // The ports of the connections over which tables are dropped from now on.
      await service.db.raw(`create table drops (port int);
        create function note_drop() returns event_trigger language plpgsql as
          'begin insert into public.drops values (inet_client_port()); end';
        create event trigger note_drop on ddl_command_start when tag in ('DROP TABLE') execute function note_drop()`);
      await service.temporal.schedule.getHandle(service.retentionScheduleId).trigger();
      // The old ones go, and the one that was missing is there again.
      await expect.poll(async () => (await partitions()).length).toBe(made - PARTITIONED.length + 1);
      expect((await partitions()).filter(isOld)).toEqual([]);
      const pooled = (await pgbouncer.console("show servers")).map(({ local_port }) => Number(local_port));
      const ports: number[] = await service.db("drops").pluck("port");
      expect(ports).toHaveLength(PARTITIONED.length);
      expect(pooled.length).toBeGreaterThan(0);
      expect(ports.filter((port) => pooled.includes(port))).toEqual([]);
    });
  });

  describe.skipIf(setup.isMissing)(`calls that are given up, by way of ${setup.name}`, () => {
    const SQL = "select pg_sleep(60)";
    /** Runs a statement for a call that can be given up. */
    function startCall(db: Db) {
      const call = new AbortController();
      const ended = onBehalfOf(call.signal, () => rows(db, SQL)).then(
        () => "completed",
        (error: unknown) => (isGivenUp(error) ? "cancelled" : error),
      );
      return { giveUp: () => call.abort(), ended };
    }
    const active = (db: Db) => db("pg_stat_activity").where({ query: SQL, state: "active" });

    test("are cancelled over TLS", async () => {
      const settings = { ...setup.pgbouncer, client_tls_sslmode: "require" };
      const { pgbouncer, direct } = await startOwn(setup.file, settings);
      const call = startCall(
        pool(`${pgbouncer.url}?sslmode=verify-full&sslrootcert=${pgbouncer.authorityFile}`),
      );
      const watching = pool(direct, 1);
      await expect.poll(() => active(watching)).toHaveLength(1);
      call.giveUp();
      expect(await call.ended).toBe("cancelled");
    });

    test("are cancelled once they have begun, when they waited for a server's connection before", async () => {
      const { pgbouncer, direct } = await startOwn(setup.file, {
        ...setup.pgbouncer,
        default_pool_size: "1",
      });
      const db = pool(pgbouncer.url);
      const holding = await db.transaction();
      await holding.raw("select 1");
      const call = startCall(db);
      const waiting = async () =>
        (await pgbouncer.console("show pools")).map(({ cl_waiting }) => Number(cl_waiting));
      await expect.poll(waiting).toContain(1);
      call.giveUp();
      await holding.commit();
      expect(await call.ended).toBe("cancelled");
      expect(await active(pool(direct, 1))).toEqual([]);
    });
  });
}

describe.skipIf(before121.isMissing)(before121.name, () => {
  const { file } = before121;

  test("stops the start while statements are prepared, and the error says what to set", async () => {
    const { pgbouncer, direct } = await startOwn(file, {});
    const settings = {
      ROLE: "api",
      DATABASE_URL: pgbouncer.url,
      DATABASE_DIRECT_URL: direct,
      SECRET_KEY: "0f".repeat(32),
    };
    await expect(startServiceProcess(settings)).rejects.toThrow(
      /ended with 1 [\s\S]*Startup failed: DATABASE_URL leads through a pooler .* set DATABASE_PREPARED_STATEMENTS=false/,
    );
    await expect(checkPooler(pgbouncer.url, direct, false)).resolves.toBeUndefined();
  });

  test("stops the start without another address of PostgreSQL; in session mode it carries everything", async () => {
    const { pgbouncer } = await startOwn(file, {});
    await expect(checkPooler(pgbouncer.url, pgbouncer.url, false)).rejects.toThrow(
      /^DATABASE_URL leads through a pooler .* set DATABASE_DIRECT_URL/,
    );
    const { pgbouncer: ofSessions } = await startOwn(file, { pool_mode: "session" });
    await expect(checkPooler(ofSessions.url, ofSessions.url, true)).resolves.toBeUndefined();
  });

  test("fails prepared statements with an error that says what to set", async () => {
    const { pgbouncer } = await startOwn(file, {});
    const db = pool(pgbouncer.url);
    const errors: unknown[] = [];
    const ask = () => rows(db, "select 1", {}, { prepare: "of_pooler" }).catch((error) => errors.push(error));
    while (errors.length === 0) await Promise.all(Array.from({ length: 10 }, ask));
    for (const error of errors) expect(error).toBeInstanceOf(PreparedStatementError);
    expect((errors[0] as Error).message).toContain("set DATABASE_PREPARED_STATEMENTS=false");
  });
});

describe.skipIf(since121.isMissing)(since121.name, () => {
  const { file } = since121;

  test("stops the start when PgBouncer keeps no prepared statements", async () => {
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
