import { readdirSync } from "node:fs";
import type { Knex } from "knex";
import { afterAll, beforeEach, expect, onTestFinished } from "vitest";
import { type Db, openDatabase } from "../../src/lib/pg/database.ts";
import * as initial from "../../src/schema/migrations/0001-initial.ts";
import { createTestDatabase } from "../support/database.ts";

/** The migrations of this version. */
export const OWN = readdirSync(new URL("../../src/schema/migrations", import.meta.url))
  .map((file) => file.replace(".ts", ""))
  .sort();

/** A database whose schema is empty at the beginning of each test of the file. */
export async function useEmptySchema(): Promise<Schema> {
  const { schema, close } = await open();
  beforeEach(() => schema.db.raw("drop schema public cascade; create schema public"));
  afterAll(close);
  return schema;
}

/** A database of this version's schema, for one test. */
export async function migratedSchema(): Promise<Schema> {
  const { schema, close } = await open();
  onTestFinished(close);
  return schema;
}

async function open() {
  const { url, drop } = await createTestDatabase();
  const db = openDatabase(url, { max: 4 });
  const close = async () => {
    await db.destroy();
    await drop();
  };
  return { schema: new Schema(url, db), close };
}

/** A database that migrations are tested on. */
export class Schema {
  readonly url: string;
  readonly db: Db;

  constructor(url: string, db: Db) {
    this.url = url;
    this.db = db;
  }

  migrations(): Promise<string[]> {
    return this.db("knex_migrations").orderBy("id").pluck("name");
  }

  tables(): Promise<string[]> {
    return this.db("pg_class")
      .whereRaw("relnamespace = 'public'::regnamespace and relkind in ('r', 'p')")
      .orderBy("relname")
      .pluck("relname");
  }

  /** Begins a transaction with a statement; ended with the test. */
  async begin(sql: string): Promise<Knex.Transaction> {
    const trx = await this.db.transaction();
    onTestFinished(async () => {
      if (!trx.isCompleted()) await trx.rollback();
    });
    await trx.raw(sql);
    return trx;
  }

  /** Holds every migration up in its middle until it is ended: a table that it makes is being made. */
  holdUp(): Promise<Knex.Transaction> {
    return this.begin("create table rollup_deltas ()");
  }

  /** Waits until one migration is held up. @returns its process id in PostgreSQL */
  async heldUp(): Promise<number> {
    const waiting =
      "wait_event_type = 'Lock' and query like '%create table rollup_deltas%' and datname = current_database()";
    const pids = () => this.db("pg_stat_activity").whereRaw(waiting).pluck<number[]>("pid");
    await expect.poll(pids).toHaveLength(1);
    return (await pids())[0] as number;
  }

  /** Makes the schema of the first migration, and begins a transaction that has read a table which a later one changes. */
  async block(): Promise<Knex.Transaction> {
    await this.db.migrate.latest({
      migrationSource: {
        getMigrations: async () => OWN.slice(0, 1),
        getMigrationName: (name: string) => name,
        getMigration: async () => initial,
      },
    });
    return this.begin("select from events");
  }
}
