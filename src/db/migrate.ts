import { setTimeout as wait } from "node:timers/promises";
import type { Knex } from "knex";
import { type Db, openDatabase, rows } from "./database.ts";
import * as initial from "./migrations/0001-initial.ts";
import * as webhookHealth from "./migrations/0002-webhook-health.ts";
import { ensurePartitions } from "./partitions.ts";

/** Every migration, in order; names are what `knex_migrations` remembers, so they never change. */
const migrations: Record<string, Knex.Migration> = {
  "0001-initial": initial,
  "0002-webhook-health": webhookHealth,
};

/** The advisory lock that one migrating process holds; any number, the same in every process. */
const MIGRATION_LOCK = 7_242_110_918;

/** How long a process waits before it asks for the lock again. */
const LOCK_RETRY_MS = 200;

/** The database holds a schema that this version can neither use nor bring up to date. */
export class SchemaError extends Error {
  override name = "SchemaError";
}

/**
 * Brings the schema up to date and makes the partitions of the coming week; any number of processes may call it at
 * once.
 *
 * Migrations of a newer version stay as they are: they only add, so that this version works beside the newer one and
 * after a roll back.
 *
 * The connections are its own: building an index of a large table takes longer than any other statement may.
 *
 * @param url PostgreSQL connection address
 * @param retentionDays decides how long a partition is. Defaults to 30
 * @throws SchemaError when the schema is that of version 0.1, which was never released, or when its migrations are
 *   others than this version's
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
 * Knex keeps its own lock in a table, which a killed process leaves taken for ever. An advisory lock ends with its
 * connection, so it guards the whole and frees the other. Nobody waits for it within a statement: an index that is
 * built concurrently waits for every statement that is under way, and so would wait for those who wait for it.
 *
 * @returns false when another process migrates
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
    // A server that ends what is idle for long would let the next process in while this one migrates.
    await lock.raw("set local idle_in_transaction_session_timeout = 0");
    const config: Knex.MigratorConfig = {
      // Knex refuses every migration that it does not know; `assertSameOrder` accepts those of newer versions.
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

/** Version 0.1 kept open and ended deliveries in one table, which has no partitions. */
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

/** Of two versions, the newer one has all migrations of the older one, in the same order, and then its own. */
function assertSameOrder(completed: readonly string[]): void {
  for (const [index, known] of Object.keys(migrations).entries()) {
    const found = completed[index];
    if (found === undefined || found === known) continue;
    throw new SchemaError(
      `migration ${index + 1} of the database is ${found}, and that of this version is ${known}: ` +
        "neither version is newer than the other; start the version that made the database, or give DATABASE_URL another one",
    );
  }
}
