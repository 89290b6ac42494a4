import { readConfig } from "./config/config.ts";
import { openDatabase } from "./db/database.ts";
import { migrate } from "./db/migrate.ts";
import { startEmbeddedParts } from "./embedded/embedded-parts.ts";
import { findRunningPostgres } from "./embedded/postgres/embedded-postgres.ts";
import { explain } from "./process/explain.ts";
import { createAdminKey } from "./startup/first-admin.ts";

/**
 * `npm run admin-key`: makes another administrator's key and prints it, on the database of a running service, or on
 * the embedded one of DATA_DIR, started for the purpose.
 */
async function main(): Promise<void> {
  const config = readConfig(process.env);
  const running = config.database.url ?? (await findRunningPostgres(config.dataDir));
  const embedded = running
    ? undefined
    : await startEmbeddedParts({ ...config, role: "api" }, process.env, (line) => console.error(line));
  try {
    const url = running ?? (embedded?.databaseUrl as string);
    await migrate(config.database.directUrl ?? url);
    const db = openDatabase(url, { max: 2 });
    try {
      console.error("A new administrator's key, for the header X-Service-Key. It is not shown again:");
      console.log(await createAdminKey(db));
    } finally {
      await db.destroy();
    }
  } finally {
    await embedded?.stop();
  }
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    console.error(explain("No key could be made", error));
    process.exit(1);
  },
);
