import path from "node:path";
import { parseArgs } from "node:util";
import { startEmbeddedParts } from "./app/embedded-parts.ts";
import { createAdminKey } from "./app/first-admin.ts";
import { explain, readConfig } from "./config/index.ts";
import { findRunningPostgres, hasPostgres } from "./lib/dev-servers/index.ts";
import { openDatabase } from "./lib/pg/index.ts";
import { migrate } from "./schema/index.ts";

const HELP = `npm run admin-key

Creates another administrator's key, with every permission, and prints it on stdout. Uses the database of DATABASE_URL, or
the embedded one in DATA_DIR, which it starts if no service runs. Has no options but --help.`;

/**
 * `npm run admin-key`: creates another administrator's key and prints it. Uses the database of a running service, or
 * starts the embedded one of DATA_DIR.
 */
async function main(): Promise<void> {
  // Throws for anything else: nobody wants a key by mistake.
  const { values } = parseArgs({ options: { help: { type: "boolean", default: false } } });
  if (values.help) {
    console.log(HELP);
    return;
  }
  const config = readConfig(process.env);
  const running = config.database.url ?? (await findRunningPostgres(config.dataDir));
  // A key of a new database would be of no use for the service, whose database is another one.
  if (!running && !(await hasPostgres(config.dataDir))) {
    throw new Error(
      `there is no database in ${path.resolve(config.dataDir)}; set DATABASE_URL and SECRET_KEY, or DATA_DIR, as for the service`,
    );
  }
  const embedded = running
    ? undefined
    : await startEmbeddedParts({ ...config, role: "api" }, process.env, (line) => console.error(line));
  try {
    const url = running ?? (embedded?.databaseUrl as string);
    await migrate(config.database.directUrl ?? url);
    const db = openDatabase(url, { max: 2 });
    try {
      console.error(
        "New administrator key, for the X-Service-Key header. Store it now: it is shown only once.",
      );
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
    console.error(explain("Creating a key failed", error));
    process.exit(1);
  },
);
