import { readdirSync } from "node:fs";
import type { Knex } from "knex";
import { afterAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { count, openDatabase, rows } from "../../src/db/database.ts";
import { type Published, publishEvents } from "../../src/db/events/publish.ts";
import { migrate, SchemaError } from "../../src/db/migrate.ts";
import * as initial from "../../src/db/migrations/0001-initial.ts";
import { listPartitions, PARTITIONED } from "../../src/db/partitions.ts";
import { createTestDatabase } from "../support/database.ts";
import { anEvent } from "../support/new-event.ts";

/** The migrations of this version. */
const OWN = readdirSync(new URL("../../src/db/migrations", import.meta.url))
  .map((file) => file.replace(".ts", ""))
  .sort();

const { url, drop } = await createTestDatabase();
const db = openDatabase(url, { max: 4 });
const databaseName = new URL(url).pathname.slice(1);
/** Each test begins with an empty database. */
beforeEach(() => db.raw("drop schema public cascade; create schema public"));
afterAll(async () => {
  await db.destroy();
  await drop();
});

const migrations = () => db("knex_migrations").orderBy("id").pluck("name");

const tables = () =>
  db("pg_class")
    .whereRaw("relnamespace = 'public'::regnamespace and relkind in ('r', 'p')")
    .orderBy("relname")
    .pluck("relname");

const errorOf = (migrating: Promise<unknown>) => migrating.catch((error: Error) => error);

/** Begins a transaction with a statement; ended with the test. */
async function begin(sql: string): Promise<Knex.Transaction> {
  const trx = await db.transaction();
  onTestFinished(async () => {
    if (!trx.isCompleted()) await trx.rollback();
  });
  await trx.raw(sql);
  return trx;
}

/** Holds every migration up in its middle until it is ended: a table that it makes is being made. */
const holdUp = () => begin("create table rollup_deltas ()");

const heldUp = (): Promise<number[]> =>
  db("pg_stat_activity")
    .whereRaw(
      "wait_event_type = 'Lock' and query like '%create table rollup_deltas%' and datname = current_database()",
    )
    .pluck("pid");

/** Makes the schema of the first migration, and begins a transaction that has read a table which a later one changes. */
async function blockMigrations(): Promise<Knex.Transaction> {
  await db.migrate.latest({
    migrationSource: {
      getMigrations: async () => OWN.slice(0, 1),
      getMigrationName: (name: string) => name,
      getMigration: async () => initial,
    },
  });
  return begin("select from events");
}

describe("an empty database", () => {
  test("gets the schema once, by one of several processes that start together", async () => {
    await Promise.all(Array.from({ length: 5 }, () => migrate(url)));
    expect(await migrations()).toEqual(OWN);
    const [published] = (await publishEvents(db, [anEvent()])) as [Published];
    expect(published).toMatchObject({ queued: 0, duplicate: false });
  });

  test("is waited for outside the database by a process that finds another one migrating", async () => {
    const holding = await holdUp();
    let done = 0;
    const migrating = Promise.all([1, 2, 3].map(() => migrate(url).then(() => (done += 1))));
    await expect.poll(heldUp).toHaveLength(1);
    const waiting = `select from pg_locks l join pg_stat_activity a using (pid)
      where l.locktype = 'advisory' and not l.granted and a.datname = current_database()`;
    expect(await rows(db, waiting)).toEqual([]);
    expect(done).toBe(0);
    await holding.rollback();
    await migrating;
    expect(await migrations()).toEqual(OWN);
  });

  test("gets months as partitions with a long retention", async () => {
    await migrate(url, { retentionDays: 365 });
    for (const table of PARTITIONED) {
      const partitions = await listPartitions(db, table);
      expect(partitions.length).toBeGreaterThan(0);
      expect(partitions.filter(({ from }) => from.getUTCDate() !== 1)).toEqual([]);
    }
  });
});

describe("an existing schema", () => {
  test("of this version stays as it is, and gets the partitions of the coming week", async () => {
    await migrate(url);
    const before = await tables();
    for (const table of PARTITIONED)
      for (const { name } of await listPartitions(db, table)) await db.raw(`drop table ${name}`);
    await migrate(url);
    expect(await tables()).toEqual(before);
    expect(await migrations()).toEqual(OWN);
  });

  test("of a newer version is used as it is", async () => {
    await migrate(url);
    await db("knex_migrations").insert({ name: "9999-newer", batch: 9, migration_time: new Date() });
    await db.raw("alter table webhooks add column newer text");
    const before = await tables();
    await migrate(url);
    expect(await migrations()).toEqual([...OWN, "9999-newer"]);
    expect(await tables()).toEqual(before);
  });

  async function expectRefused(message: RegExp): Promise<void> {
    const refused = await errorOf(migrate(url));
    expect(refused).toBeInstanceOf(SchemaError);
    expect(refused).toMatchObject({ name: "SchemaError", message: expect.stringMatching(message) });
  }

  test("of version 0.1 is refused, with what to do about it, and left as it is", async () => {
    await db.raw("create table deliveries as select gen_random_uuid() as id, 'pending' as state");
    await expectRefused(/version 0\.1.*DATABASE_URL.*empty database.*DATA_DIR/);
    expect([await tables(), await db("deliveries").pluck("state")]).toEqual([["deliveries"], ["pending"]]);
  });

  test("with other migrations than this version's is refused, and left as it is", async () => {
    await migrate(url);
    await db("knex_migrations").where({ name: "0001-initial" }).update({ name: "0001-another" });
    await expectRefused(/0001-another.*0001-initial.*DATABASE_URL/);
    expect(await migrations()).toEqual(["0001-another", ...OWN.slice(1)]);
  });
});

describe("a migration that is interrupted", () => {
  test("by an error leaves nothing of it, and the next process makes it", async () => {
    const holding = await holdUp();
    const failing = errorOf(migrate(url));
    await expect.poll(heldUp).toHaveLength(1);
    await db.raw("select pg_cancel_backend(?)", await heldUp());
    expect(await failing).toMatchObject({ code: "57014" });
    await holding.rollback();
    expect((await tables()).filter((name) => !name.startsWith("knex_"))).toEqual([]);
    await migrate(url);
    expect(await migrations()).toEqual(OWN);
  });

  test("by the death of its process leaves what the next one takes up", async () => {
    const holding = await holdUp();
    const dying = errorOf(migrate(url));
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
    await migrate(url);
    expect(await migrations()).toEqual(OWN);
    expect(await tables()).toContain("rollup_deltas");
  });
});

describe("a migration that gets no lock", () => {
  test("gives way to publishers, tries again, and is made once the lock is free", async () => {
    const reading = await blockMigrations();
    const blocked: Error[] = [];
    let isDone = false;
    const migrating = migrate(url, { onBlocked: (error) => blocked.push(error) }).then(() => {
      isDone = true;
    });
    const waiting = "wait_event_type = 'Lock' and datname = current_database()";
    await expect.poll(() => db("pg_stat_activity").whereRaw(waiting).pluck("pid")).toHaveLength(1);
    // Waits behind the migration, until that gives way; the other transaction still holds its lock.
    expect(await count(db, "update events set payload = payload where false")).toBe(0);
    await expect.poll(() => blocked.length).toBeGreaterThanOrEqual(1);
    expect(blocked[0]).toMatchObject({ code: "55P03" });
    expect(isDone).toBe(false);
    await reading.rollback();
    await migrating;
    expect(await migrations()).toEqual(OWN);
  });

  test("is not ended by timeouts of the role or the database", async () => {
    const reading = await blockMigrations();
    const names = ["statement_timeout", "transaction_timeout"];
    // Shorter than the wait for a lock. PostgreSQL 16 has no limit of a transaction.
    for (const name of await db("pg_settings").whereIn("name", names).pluck("name"))
      await db.raw(`alter database ${databaseName} set ${name} = '500ms'`);
    onTestFinished(() => db.raw(`alter database ${databaseName} reset all`));
    const blocked: Error[] = [];
    await migrate(url, {
      onBlocked(error) {
        blocked.push(error);
        if (!reading.isCompleted()) void reading.rollback();
      },
    });
    expect(blocked[0]).toMatchObject({ code: "55P03" });
    expect(await migrations()).toEqual(OWN);
  });

  test("ends with its signal", async () => {
    await blockMigrations();
    const stopping = new AbortController();
    const onBlocked = () => stopping.abort(new Error("stopped"));
    await expect(migrate(url, { signal: stopping.signal, onBlocked })).rejects.toThrow("stopped");
  });
});
