import type { Knex } from "knex";
import * as initial from "./migrations/0001-initial.ts";
import * as leanClaims from "./migrations/0002-lean-claims.ts";
import * as rotation from "./migrations/0003-rotation.ts";
import * as sessions from "./migrations/0004-sessions.ts";
import * as testEvents from "./migrations/0005-test-events.ts";
import * as failedDeliveries from "./migrations/0006-failed-deliveries.ts";
import * as runsStarted from "./migrations/0007-runs-started.ts";

/** Every migration, in order; names are what `knex_migrations` remembers, so they never change. */
const migrations: Record<string, Knex.Migration> = {
  "0001-initial": initial,
  "0002-lean-claims": leanClaims,
  "0003-rotation": rotation,
  "0004-sessions": sessions,
  "0005-test-events": testEvents,
  "0006-failed-deliveries": failedDeliveries,
  "0007-runs-started": runsStarted,
};

/** The advisory lock that one migrating process holds; any number, the same in every process. */
const MIGRATION_LOCK = 7_242_110_918;

/**
 * Brings the schema up to date; any number of processes may call it at once.
 *
 * Knex keeps its own lock in a table, which a killed process leaves taken for ever. An advisory lock ends with its
 * connection, so it guards the whole and frees the other.
 */
export async function migrate(db: Knex): Promise<void> {
  await db.transaction(async (lock) => {
    await lock.raw("select pg_advisory_xact_lock(?)", [MIGRATION_LOCK]);
    const config: Knex.MigratorConfig = {
      migrationSource: {
        getMigrations: async () => Object.keys(migrations),
        getMigrationName: (name: string) => name,
        getMigration: async (name: string) => migrations[name] as Knex.Migration,
      },
    };
    await db.migrate.forceFreeMigrationsLock(config);
    await db.migrate.latest(config);
  });
}
