import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { TestProject } from "vitest/node";
import { openDatabase } from "../../src/db/database.ts";
import { migrate } from "../../src/db/migrate.ts";
import { startEmbeddedPostgres } from "../../src/embedded/postgres/embedded-postgres.ts";
import { removeDataDir } from "../../src/embedded/postgres/postgres-home.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The superuser's address of the run's one PostgreSQL, of a database that nobody's tests use. */
    postgresUrl: string;
    /** Name of a migrated database to be cloned. */
    templateDatabase: string;
  }
}

/** What a crash would lose is no loss to tests. */
const FAST = {
  fsync: "off",
  full_page_writes: "off",
  synchronous_commit: "off",
  max_wal_size: "4GB",
  checkpoint_timeout: "30min",
};
const TEMPLATE = "template_migrated";

/** One PostgreSQL for the whole run, migrated once; each test file clones the template. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const folder = await mkdtemp(path.join(tmpdir(), "webhook-test-postgres-"));
  const postgres = await startEmbeddedPostgres({
    dataDir: folder,
    progress: (line) => console.log(line),
    port: 0,
    settings: FAST,
  });
  const admin = openDatabase(postgres.superuserUrl, { max: 1 });
  await admin.raw(`create database ${TEMPLATE}`);
  await admin.destroy();

  const templateUrl = new URL(postgres.superuserUrl);
  templateUrl.pathname = TEMPLATE;
  await migrate(templateUrl.href);

  project.provide("postgresUrl", postgres.superuserUrl);
  project.provide("templateDatabase", TEMPLATE);
  return async () => {
    await postgres.stop();
    await removeDataDir(folder);
  };
}
