import { setTimeout as wait } from "node:timers/promises";
import type { Knex } from "knex";
import { type Db, openDatabase, rows } from "./database.ts";
import * as initial from "./migrations/0001-initial.ts";
import * as leanClaims from "./migrations/0002-lean-claims.ts";
import * as rotation from "./migrations/0003-rotation.ts";
import * as sessions from "./migrations/0004-sessions.ts";
import * as testEvents from "./migrations/0005-test-events.ts";
import * as failedDeliveries from "./migrations/0006-failed-deliveries.ts";
import * as runsStarted from "./migrations/0007-runs-started.ts";
import * as passes from "./migrations/0008-passes.ts";
import * as sessionSecrets from "./migrations/0009-session-secrets.ts";
import * as removableKeys from "./migrations/0010-removable-keys.ts";
import * as chosenKeyPrefixes from "./migrations/0011-chosen-key-prefixes.ts";

/** Every migration, in order; names are what `knex_migrations` remembers, so they never change. */
const migrations: Record<string, Knex.Migration> = {
  "0001-initial": initial,
  "0002-lean-claims": leanClaims,
  "0003-rotation": rotation,
  "0004-sessions": sessions,
  "0005-test-events": testEvents,
  "0006-failed-deliveries": failedDeliveries,
  "0007-runs-started": runsStarted,
  "0008-passes": passes,
  "0009-session-secrets": sessionSecrets,
  "0010-removable-keys": removableKeys,
  "0011-chosen-key-prefixes": chosenKeyPrefixes,
};

/** The advisory lock that one migrating process holds; any number, the same in every process. */
const MIGRATION_LOCK = 7_242_110_918;

/** How long a process waits before it asks for the lock again. */
const LOCK_RETRY_MS = 200;

/**
 * Brings the schema up to date; any number of processes may call it at once.
 *
 * The connections are its own: building an index of a large table takes longer than any other statement may.
 *
 * @param url PostgreSQL connection address
 */
export async function migrate(url: string): Promise<void> {
  const db = openDatabase(url, { max: 2, queryTimeoutMs: 0 });
  try {
    while (!(await migrateUnlessLocked(db))) await wait(LOCK_RETRY_MS);
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
    // A server that ends what is idle for long would let the next process in while this one migrates.
    await lock.raw("set local idle_in_transaction_session_timeout = 0");
    const config: Knex.MigratorConfig = {
      migrationSource: {
        getMigrations: async () => Object.keys(migrations),
        getMigrationName: (name: string) => name,
        getMigration: async (name: string) => migrations[name] as Knex.Migration,
      },
    };
    await db.migrate.forceFreeMigrationsLock(config);
    await db.migrate.latest(config);
    return true;
  });
}
