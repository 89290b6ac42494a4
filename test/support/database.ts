import { randomUUID } from "node:crypto";
import { type Db, openDatabase } from "../../src/lib/pg/database.ts";
import { part } from "./parts.ts";

/** A migrated database of a test file's own. */
export interface TestDatabase {
  url: string;
  /** Ends its connections too. */
  drop(): Promise<void>;
}

/** Clones the template, which takes some 50 ms. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const { url: adminUrl, template } = await part("postgres");
  // The account of processor time knows by the name whose it is.
  const name = `test_${process.pid}_${randomUUID().replaceAll("-", "")}`;
  // Copies of files need half the processor time of the default, pages by way of the log.
  await administer(`create database ${name} template ${template} strategy file_copy`);
  const url = new URL(adminUrl);
  url.pathname = name;
  return { url: url.href, drop: () => administer(`drop database ${name} with (force)`) };
}

let admin: Db | undefined;

/** By a pool of the process, because to log in takes longer than most of what is done. */
async function administer(sql: string): Promise<void> {
  admin ??= openDatabase((await part("postgres")).url, { max: 2, applicationName: "test" });
  await admin.raw(sql);
}

let shared: Promise<Db> | undefined;

/** The database that the files of this worker share, one after the other, with empty tables. */
export async function useDatabase(): Promise<Db> {
  shared ??= createTestDatabase().then(({ url }) => openDatabase(url, { max: 10 }));
  const db = await shared;
  await empty(db);
  return db;
}

/** The tables of the migrations. */
const KEPT = ["knex_migrations", "knex_migrations_lock"];

/** Up to this size, in bytes, rows are deleted. Their space is used again. */
const SMALL = 65_536;

/**
 * Deletes the rows of small tables, in no order: no trigger sees it. To truncate them takes twenty times as long, because each
 * table, partition and index gets a new file. The audit log refuses both.
 */
const EMPTY = `do $$ declare
    small text;
    large text;
  begin
    set local session_replication_role = replica;
    select string_agg('delete from ' || name, ';') filter (where size <= ${SMALL} and name <> 'audit_log'),
        string_agg(name, ',') filter (where size > ${SMALL} or name = 'audit_log') into small, large
      from (
        select oid::regclass::text as name, pg_relation_size(oid) as size from pg_class
        where relnamespace = 'public'::regnamespace and relkind = 'r' and relname <> all('{${KEPT}}')
      ) t
      where size > 0;
    if small is not null then
      execute small;
    end if;
    if large is not null then
      alter table audit_log disable trigger audit_log_not_truncated;
      execute 'truncate ' || large || ' cascade';
      alter table audit_log enable always trigger audit_log_not_truncated;
    end if;
  end $$`;

/** Removes all rows. */
export async function empty(db: Db): Promise<void> {
  await db.raw(EMPTY);
}

/**
 * Works in a transaction of which now() is another moment. Nothing of it stays.
 *
 * @param moment in SQL
 */
export async function atMoment(db: Db, moment: string, work: (trx: Db) => Promise<unknown>): Promise<void> {
  const trx = await db.transaction();
  try {
    await trx.raw(`create schema clock;
      create function clock.now() returns timestamptz stable language sql
        as $$ select current_setting('test.now')::timestamptz $$;
      select set_config('test.now', (${moment})::text, true);
      set local search_path = clock, pg_catalog, public`);
    await work(trx);
  } finally {
    await trx.rollback();
  }
}
