import { randomUUID } from "node:crypto";
import type { Knex } from "knex";
import { afterAll, afterEach, beforeAll, beforeEach, expect, onTestFinished, test } from "vitest";
import { count, type Db, openDatabase, rows } from "../../src/db/database.ts";
import { publishEvents } from "../../src/db/events/publish.ts";
import { migrate, SchemaError } from "../../src/db/migrate.ts";
import * as initial from "../../src/db/migrations/0001-initial.ts";
import { listPartitions, PARTITIONED } from "../../src/db/partitions.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";

/** The migrations of this version. */
const OWN = [
  "0001-initial",
  "0002-webhook-health",
  "0003-search",
  "0004-webhook-changes",
  "0005-audit-log",
  "0006-event-trace",
  "0007-request-settings",
  "0008-circuit-breakers",
  "0009-notices",
  "0010-quotas",
  "0011-replays",
  "0012-filters",
  "0013-endpoints",
  "0014-queued-again",
  "0015-plans-of-publishing",
];

let database: TestDatabase;
let db: Db;
let holding: Knex.Transaction | undefined;
beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 4 });
});
/** Each test begins with an empty database. */
beforeEach(() => db.raw("drop schema public cascade; create schema public"));
afterEach(async () => {
  if (holding && !holding.isCompleted()) await holding.rollback();
});
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

const databaseName = () => new URL(database.url).pathname.slice(1);

const migrations = () => db("knex_migrations").orderBy("id").pluck("name");

const tables = async () =>
  (
    await rows<{ name: string }>(
      db,
      "select relname as name from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') order by 1",
    )
  ).map(({ name }) => name);

/** Holds every migration up in its middle until it is ended: a table that it makes is being made. */
async function holdUp(): Promise<Knex.Transaction> {
  holding = await db.transaction();
  await holding.raw("create table rollup_deltas ()");
  return holding;
}

const heldUp = () =>
  rows<{ pid: number }>(
    db,
    `select pid from pg_stat_activity
      where wait_event_type = 'Lock' and query like '%create table rollup_deltas%' and datname = current_database()`,
  );

/** Makes the schema of the first migration, and begins a transaction that has read a table which a later one changes. */
async function blockMigrations(): Promise<Knex.Transaction> {
  await db.migrate.latest({
    migrationSource: {
      getMigrations: async () => OWN.slice(0, 1),
      getMigrationName: (name: string) => name,
      getMigration: async () => initial,
    },
  });
  holding = await db.transaction();
  await holding.raw("select from events");
  return holding;
}

test("one of several processes that start together on an empty database makes the schema, once", async () => {
  await Promise.all(Array.from({ length: 5 }, () => migrate(database.url)));
  expect(await migrations()).toEqual(OWN);
  for (const table of PARTITIONED) {
    const days = (await listPartitions(db, table)).map(({ from }) => from.getTime());
    expect(new Set(days).size).toBe(days.length);
    expect(days.length).toBeGreaterThanOrEqual(8);
  }
  const event = { idempotencyKey: "k", requestSha256: "00".repeat(32), process: 1, userId: "u" };
  const published = await publishEvents(db, [
    { ...event, apiKeyId: randomUUID(), occurred: null, payload: "{}" },
  ]);
  expect(published).toMatchObject([{ queued: 0, duplicate: false }]);
});

test("a process that finds another one migrating waits for it outside the database, and finds all done", async () => {
  const holding = await holdUp();
  let done = 0;
  const migrating = Promise.all([1, 2, 3].map(() => migrate(database.url).then(() => (done += 1))));
  await expect.poll(heldUp).toHaveLength(1);
  const waiting = await rows(
    db,
    `select from pg_locks l join pg_stat_activity a using (pid)
      where l.locktype = 'advisory' and not l.granted and a.datname = current_database()`,
  );
  expect(waiting).toEqual([]);
  expect(done).toBe(0);
  await holding.rollback();
  await migrating;
  expect(await migrations()).toEqual(OWN);
});

test("a schema of version 0.1 is refused, with what to do about it, and left as it is", async () => {
  await db.raw(
    "create table deliveries (id uuid primary key, state text); insert into deliveries values (gen_random_uuid(), 'pending')",
  );
  const before = await tables();
  const refused = await migrate(database.url).catch((error: Error) => error);
  expect(refused).toBeInstanceOf(SchemaError);
  expect(refused).toMatchObject({
    name: "SchemaError",
    message: expect.stringMatching(/version 0\.1.*DATABASE_URL.*empty database.*DATA_DIR/),
  });
  expect(await tables()).toEqual(before);
  expect(await db("deliveries").pluck("state")).toEqual(["pending"]);
});

test("a database with migrations of a newer version is used as it is", async () => {
  await migrate(database.url);
  await db("knex_migrations").insert({ name: "9999-newer", batch: 9, migration_time: new Date() });
  await db.raw("alter table webhooks add column newer text");
  const before = await tables();
  await migrate(database.url);
  expect(await migrations()).toEqual([...OWN, "9999-newer"]);
  expect(await tables()).toEqual(before);
});

test("a database whose migrations are others than this version's is refused, and left as it is", async () => {
  await migrate(database.url);
  await db("knex_migrations").where({ name: "0001-initial" }).update({ name: "0001-another" });
  const refused = await migrate(database.url).catch((error: Error) => error);
  expect(refused).toBeInstanceOf(SchemaError);
  expect(refused).toMatchObject({
    message: expect.stringMatching(/0001-another.*0001-initial.*DATABASE_URL/),
  });
  expect(await migrations()).toEqual(["0001-another", ...OWN.slice(1)]);
});

test("a migration that fails leaves nothing of it, and the next process makes it", async () => {
  const holding = await holdUp();
  const failing = migrate(database.url).catch((error: Error) => error);
  await expect.poll(heldUp).toHaveLength(1);
  const [statement] = await heldUp();
  await count(db, "select pg_cancel_backend(:pid::int)", { pid: statement?.pid });
  expect(await failing).toMatchObject({ code: "57014" });
  await holding.rollback();
  expect((await tables()).filter((name) => !name.startsWith("knex_"))).toEqual([]);
  await migrate(database.url);
  expect(await migrations()).toEqual(OWN);
});

test("a migrating process that dies leaves what the next one takes up", async () => {
  const holding = await holdUp();
  const dying = migrate(database.url).catch((error: Error) => error);
  await expect.poll(heldUp).toHaveLength(1);
  // All its connections at once, so that it cannot put anything right.
  await db.raw(
    `select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'webhook-service' and pid <> pg_backend_pid()
        and pid not in (select pid from pg_stat_activity where query like 'create table rollup_deltas ()%')`,
  );
  expect(await dying).toBeInstanceOf(Error);
  await holding.rollback();
  // A process that is killed leaves its lock taken; this one has freed it over another connection.
  expect(await db("knex_migrations_lock").update({ is_locked: 1 })).toBe(1);
  await migrate(database.url);
  expect(await migrations()).toEqual(OWN);
  expect(await tables()).toContain("rollup_deltas");
});

test("a migration that gets no lock gives way to publishers, tries again, and is made once the lock is free", async () => {
  const reading = await blockMigrations();
  const blocked: Error[] = [];
  let isDone = false;
  const migrating = migrate(database.url, { onBlocked: (error) => blocked.push(error) }).then(() => {
    isDone = true;
  });
  const waiting = () =>
    rows(db, "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()");
  await expect.poll(waiting).toHaveLength(1);
  // Waits behind the migration, until that gives way; the other transaction still holds its lock.
  expect(await count(db, "update events set payload = payload where false")).toBe(0);
  await expect.poll(() => blocked.length).toBeGreaterThanOrEqual(1);
  expect(blocked[0]).toMatchObject({ code: "55P03" });
  expect(isDone).toBe(false);
  await reading.rollback();
  await migrating;
  expect(await migrations()).toEqual(OWN);
});

test("timeouts of the role or the database do not end a migration", async () => {
  const reading = await blockMigrations();
  // Shorter than the wait for a lock.
  await db.raw(`alter database ${databaseName()} set statement_timeout = '500ms'`);
  const hasTransactionTimeout = await rows(db, "select from pg_settings where name = 'transaction_timeout'");
  if (hasTransactionTimeout.length > 0)
    await db.raw(`alter database ${databaseName()} set transaction_timeout = '500ms'`);
  onTestFinished(() => db.raw(`alter database ${databaseName()} reset all`));
  const blocked: Error[] = [];
  const migrating = migrate(database.url, {
    onBlocked(error) {
      blocked.push(error);
      if (!reading.isCompleted()) void reading.rollback();
    },
  });
  await migrating;
  expect(blocked[0]).toMatchObject({ code: "55P03" });
  expect(await migrations()).toEqual(OWN);
});

test("an attempt to get a lock ends with its signal", async () => {
  await blockMigrations();
  const stopping = new AbortController();
  const migrating = migrate(database.url, {
    signal: stopping.signal,
    onBlocked: () => stopping.abort(new Error("stopped")),
  });
  await expect(migrating).rejects.toThrow("stopped");
});

test("an up-to-date schema stays as it is, and gets the partitions of the coming week", async () => {
  await migrate(database.url);
  const before = await tables();
  for (const table of PARTITIONED)
    for (const { name } of await listPartitions(db, table)) await db.raw(`drop table ${name}`);
  await migrate(database.url);
  expect(await tables()).toEqual(before);
  expect(await migrations()).toEqual(OWN);
});

test("with a long retention its partitions are months", async () => {
  await migrate(database.url, { retentionDays: 365 });
  for (const table of PARTITIONED) {
    const partitions = await listPartitions(db, table);
    expect(partitions.length).toBeLessThanOrEqual(2);
    expect(partitions.every(({ from, to }) => from.getUTCDate() === 1 && to.getUTCDate() === 1)).toBe(true);
  }
});
