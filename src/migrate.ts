import { explain, readConfig } from "./config/index.ts";
import { untilAnswered } from "./lib/pg/index.ts";
import { createLogger, untilToldToStop } from "./lib/process/index.ts";
import { MIGRATION_BLOCKED, migrate } from "./schema/index.ts";

/**
 * `npm run migrate`: migrates the schema of DATABASE_URL and ends, before new processes start. Waits for the database; SIGTERM
 * ends it.
 */
async function main(): Promise<void> {
  const stopping = new AbortController();
  void untilToldToStop().then(() => stopping.abort(new Error("stopped before the schema was migrated")));
  const config = readConfig(process.env);
  const { url, directUrl = url } = config.database;
  if (directUrl === undefined)
    throw new Error("DATABASE_URL is not set; an embedded database needs no migration");
  const log = createLogger(config.logLevel, { role: "migrate" });
  const { signal } = stopping;
  const options = {
    retentionDays: config.dispatch.retentionDays,
    signal,
    onBlocked: (err: Error) => log.warn({ err }, MIGRATION_BLOCKED),
  };
  await untilAnswered(() => migrate(directUrl, options), {
    signal,
    onFirstFault: (err) => log.warn({ err }, "waiting for the database"),
  });
  console.log("the schema is up to date");
}

main().then(
  () => process.exit(0),
  (error: unknown) => {
    console.error(explain("Migrating failed", error));
    process.exit(1);
  },
);
