import { setTimeout as wait } from "node:timers/promises";
import type { Knex } from "knex";
import { type Db, openDatabase, rows } from "./database.ts";
import * as initial from "./migrations/0001-initial.ts";
import * as webhookHealth from "./migrations/0002-webhook-health.ts";
import * as search from "./migrations/0003-search.ts";
import * as webhookChanges from "./migrations/0004-webhook-changes.ts";
import * as auditLog from "./migrations/0005-audit-log.ts";
import * as eventTrace from "./migrations/0006-event-trace.ts";
import * as requestSettings from "./migrations/0007-request-settings.ts";
import { ensurePartitions } from "./partitions.ts";

/** All migrations, in order. Names are stored in `knex_migrations` and must never change. */
const migrations: Record<string, Knex.Migration> = {
  "0001-initial": initial,
  "0002-webhook-health": webhookHealth,
  "0003-search": search,
  "0004-webhook-changes": webhookChanges,
  "0005-audit-log": auditLog,
  "0006-event-trace": eventTrace,
  "0007-request-settings": requestSettings,
};

/** The advisory lock of the migrating process. An arbitrary number, the same in every process. */
const MIGRATION_LOCK = 7_242_110_918;

/** The delay between attempts to get the lock, in milliseconds. */
const LOCK_RETRY_MS = 200;

/** Thrown if this version can neither use nor upgrade the schema of the database. */
export class SchemaError extends Error {
  override name = "SchemaError";
}

/**
 * Migrates the schema and creates the partitions of the coming week. Safe to call concurrently from any number of
 * processes.
 *
 * Migrations of a newer version are accepted: they only add to the schema, so this version works beside the newer one
 * and after a rollback.
 *
 * Opens its own connections, because building an index on a large table takes longer than the statement timeout.
 *
 * @param url the connection URL of PostgreSQL
 * @param retentionDays determines the length of partitions. Defaults to 30
 * @throws SchemaError if the schema is that of the unreleased version 0.1, or its migrations differ from this
 *   version's
 */
export async function migrate(url: string, retentionDays = 30): Promise<void> {
  const db = openDatabase(url, { max: 2, queryTimeoutMs: 0 });
  try {
    while (!(await migrateUnlessLocked(db))) await wait(LOCK_RETRY_MS);
    await ensurePartitions(db, retentionDays);
  } finally {
    await db.destroy();
  }
}

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
        lock: MIGRATION_LOCK,
      },
    );
    if (!taken?.got) return false;
    await assertNotVersionOne(lock);
    // An idle timeout of the server would release the lock during the migration.
    await lock.raw("set local idle_in_transaction_session_timeout = 0");
    const config: Knex.MigratorConfig = {
      // Knex rejects unknown migrations; `assertSameOrder` accepts those of newer versions.
      disableMigrationsListValidation: true,
      migrationSource: {
        getMigrations: async () => Object.keys(migrations),
        getMigrationName: (name: string) => name,
        getMigration: async (name: string) => migrations[name] as Knex.Migration,
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
  for (const [index, known] of Object.keys(migrations).entries()) {
    const found = completed[index];
    if (found === undefined || found === known) continue;
    throw new SchemaError(
      `migration ${index + 1} of the database is ${found}, but that of this version is ${known}: ` +
        "neither version is newer than the other; start the version that created the database, or set DATABASE_URL to another database",
    );
  }
}
