import { readdirSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import type { Knex } from "knex";
import pRetry from "p-retry";
import { type Db, openDatabase, rows } from "../lib/pg/index.ts";
import { ADVISORY_LOCKS } from "./advisory-locks.ts";
import { ensurePartitions } from "./partitions.ts";

const FOLDER = new URL("migrations/", import.meta.url);

/** All migrations, in order: the names of their files. They are stored in `knex_migrations`, and must never change. */
const MIGRATIONS = readdirSync(FOLDER)
  .filter((file) => file.endsWith(".ts"))
  .map((file) => file.slice(0, -".ts".length))
  .sort();

/** The delay between attempts to get the lock, in milliseconds. */
const LOCK_RETRY_MS = 200;

/**
 * The time that a migration waits for a lock, in milliseconds. Every later statement on the table waits behind it, such as
 * those of publishers, so the migration soon stops waiting and tries again later.
 */
const LOCK_TIMEOUT_MS = 1_000;
/** The delays between attempts of a migration that gets no lock, in milliseconds. They double, and are randomized. */
const BLOCKED_RETRY_MS = { min: 1_000, max: 10_000 };
/** SQLSTATE of a lock timeout. */
const LOCK_NOT_AVAILABLE = "55P03";

/** Logged each time that a migration stops waiting for a lock. */
export const MIGRATION_BLOCKED =
  "a migration waits for a lock that another transaction holds, and tries again; find it with pg_blocking_pids or in pg_stat_activity, and end it if it is forgotten";

/** Thrown if this version can neither use nor upgrade the schema of the database. */
export class SchemaError extends Error {
  override name = "SchemaError";
}

/** Options of `migrate`. */
export interface MigrateOptions {
  /** Determines the length of partitions, in days. Defaults to 30. */
  retentionDays?: number;
  /** Stops the attempts to get a lock, and throws its reason. */
  signal?: AbortSignal;
  /** Called with the error each time that a lock was not to be had. */
  onBlocked?: (error: Error) => void;
}

/**
 * Migrates the schema and creates the partitions of the coming week. Safe to call concurrently from any number of
 * processes. Retries without end while another transaction holds a lock that a migration needs; completed migrations stay.
 *
 * Migrations of a newer version are accepted: they only add to the schema, so this version works beside the newer one
 * and after a rollback.
 *
 * Opens its own connections, because building an index on a large table takes longer than the statement timeout.
 *
 * @param url the connection URL of PostgreSQL
 * @throws SchemaError if the schema is that of the unreleased version 0.1, or its migrations differ from this
 *   version's
 */
export async function migrate(
  url: string,
  { retentionDays = 30, signal, onBlocked }: MigrateOptions = {},
): Promise<void> {
  const db = openDatabase(url, { max: 2, queryTimeoutMs: 0, lockTimeoutMs: LOCK_TIMEOUT_MS });
  const attempt = async () => {
    while (!(await migrateUnlessLocked(db))) await wait(LOCK_RETRY_MS, undefined, signal ? { signal } : {});
    await ensurePartitions(db, retentionDays);
  };
  try {
    await pRetry(attempt, {
      retries: Number.POSITIVE_INFINITY,
      minTimeout: BLOCKED_RETRY_MS.min,
      maxTimeout: BLOCKED_RETRY_MS.max,
      randomize: true,
      shouldRetry: ({ error }) => isLockTimeout(error),
      onFailedAttempt: ({ error }) => {
        if (isLockTimeout(error)) onBlocked?.(error);
      },
      ...(signal ? { signal } : {}),
    });
  } finally {
    await db.destroy();
  }
}

const isLockTimeout = (error: Error) => (error as NodeJS.ErrnoException).code === LOCK_NOT_AVAILABLE;

/**
 * Knex's own lock is a table row, which a killed process never releases. An advisory lock ends with its connection;
 * it guards the whole migration and releases knex's lock. Other processes poll instead of waiting in a statement:
 * CREATE INDEX CONCURRENTLY waits for all running statements, and would deadlock with them.
 *
 * @returns false if another process is migrating
 */
function migrateUnlessLocked(db: Db): Promise<boolean> {
  return db.transaction(async (lock) => {
    const [taken] = await rows<{ got: boolean }>(
      lock,
      "select pg_try_advisory_xact_lock(:lock::bigint) as got",
      {
        lock: ADVISORY_LOCKS.migration,
      },
    );
    if (!taken?.got) return false;
    await assertNotVersionOne(lock);
    // An idle timeout of the server would release the lock during the migration.
    await lock.raw("set local idle_in_transaction_session_timeout = 0");
    // The server finds out within two minutes that the machine of this process is lost, and releases the lock.
    await lock.raw(
      "set local tcp_keepalives_idle = 60; set local tcp_keepalives_interval = 10; set local tcp_keepalives_count = 6",
    );
    const config: Knex.MigratorConfig = {
      // Knex rejects unknown migrations; `assertSameOrder` accepts those of newer versions.
      disableMigrationsListValidation: true,
      migrationSource: {
        getMigrations: async () => MIGRATIONS,
        getMigrationName: (name: string) => name,
        getMigration: (name: string): Promise<Knex.Migration> => import(new URL(`${name}.ts`, FOLDER).href),
      },
    };
    await db.migrate.forceFreeMigrationsLock(config);
    const [completed] = (await db.migrate.list(config)) as [{ name: string }[], unknown];
    assertSameOrder(completed.map(({ name }) => name));
    await db.migrate.latest(config);
    return true;
  });
}

/** Version 0.1 stored open and ended deliveries in one table without partitions. */
async function assertNotVersionOne(db: Db): Promise<void> {
  const [found] = await rows<{ old: boolean }>(
    db,
    `select to_regclass('deliveries') is not null and to_regclass('queue') is null as old`,
  );
  if (!found?.old) return;
  throw new SchemaError(
    "the database holds the schema of version 0.1, which was never released and cannot be upgraded; " +
      "give DATABASE_URL an empty database, or move the data directory (DATA_DIR) away to start with an empty embedded one",
  );
}

/** The newer of two versions has all migrations of the older one, in the same order, followed by its own. */
function assertSameOrder(completed: readonly string[]): void {
  for (const [index, known] of MIGRATIONS.entries()) {
    const found = completed[index];
    if (found === undefined || found === known) continue;
    throw new SchemaError(
      `migration ${index + 1} of the database is ${found}, but that of this version is ${known}: ` +
        "neither version is newer than the other; start the version that created the database, or set DATABASE_URL to another database",
    );
  }
}
