import type { Knex } from "knex";
import { describe, expect, onTestFinished, test } from "vitest";
import { count } from "../../../src/db/database.ts";
import { migrate } from "../../../src/db/migrate.ts";
import * as initial from "../../../src/db/migrations/0001-initial.ts";
import { OWN, useEmptySchema } from "./schema.ts";

const schema = await useEmptySchema();

/** Makes the schema of the first migration, and begins a transaction that has read a table which a later one changes. */
async function blockMigrations(): Promise<Knex.Transaction> {
  await schema.db.migrate.latest({
    migrationSource: {
      getMigrations: async () => OWN.slice(0, 1),
      getMigrationName: (name: string) => name,
      getMigration: async () => initial,
    },
  });
  return schema.begin("select from events");
}

describe("a migration that gets no lock", () => {
  test("gives way to publishers, tries again, and is made once the lock is free", async () => {
    const reading = await blockMigrations();
    const blocked: Error[] = [];
    let isDone = false;
    const migrating = migrate(schema.url, { onBlocked: (error) => blocked.push(error) }).then(() => {
      isDone = true;
    });
    const waiting = "wait_event_type = 'Lock' and datname = current_database()";
    await expect.poll(() => schema.db("pg_stat_activity").whereRaw(waiting).pluck("pid")).toHaveLength(1);
    // Waits behind the migration, until that gives way; the other transaction still holds its lock.
    expect(await count(schema.db, "update events set payload = payload where false")).toBe(0);
    await expect.poll(() => blocked.length).toBeGreaterThanOrEqual(1);
    expect(blocked[0]).toMatchObject({ code: "55P03" });
    expect(isDone).toBe(false);
    await reading.rollback();
    await migrating;
    expect(await schema.migrations()).toEqual(OWN);
  });

  test("is not ended by timeouts of the role or the database", async () => {
    const reading = await blockMigrations();
    const { pathname } = new URL(schema.url);
    const databaseName = pathname.slice(1);
    const names = ["statement_timeout", "transaction_timeout"];
    // Shorter than the wait for a lock. PostgreSQL 16 has no limit of a transaction.
    for (const name of await schema.db("pg_settings").whereIn("name", names).pluck("name"))
      await schema.db.raw(`alter database ${databaseName} set ${name} = '500ms'`);
    onTestFinished(() => schema.db.raw(`alter database ${databaseName} reset all`));
    const blocked: Error[] = [];
    await migrate(schema.url, {
      onBlocked(error) {
        blocked.push(error);
        if (!reading.isCompleted()) void reading.rollback();
      },
    });
    expect(blocked[0]).toMatchObject({ code: "55P03" });
    expect(await schema.migrations()).toEqual(OWN);
  });

  test("ends with its signal", async () => {
    await blockMigrations();
    const stopping = new AbortController();
    const onBlocked = () => stopping.abort(new Error("stopped"));
    await expect(migrate(schema.url, { signal: stopping.signal, onBlocked })).rejects.toThrow("stopped");
  });
});
