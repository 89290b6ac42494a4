import { chmod } from "node:fs/promises";
import path from "node:path";
import { startEmbeddedPostgres } from "../../../src/lib/dev-servers/postgres/embedded-postgres.ts";
import { openDatabase } from "../../../src/lib/pg/database.ts";
import { migrate } from "../../../src/schema/migrate.ts";
import { teller } from "./failures.ts";
import { KeptCluster } from "./kept-cluster.ts";
import type { Started } from "./parts.ts";

/** What a crash would lose is no loss to tests. */
const FAST = {
  fsync: "off",
  full_page_writes: "off",
  synchronous_commit: "off",
  max_wal_size: "4GB",
  checkpoint_timeout: "30min",
  // No database lives long enough to need it, and its workers visit each.
  autovacuum: "off",
};
const TEMPLATE = "template_migrated";

/** Starts one PostgreSQL for the whole run, migrated once. */
export async function startPostgres(folder: string): Promise<Started<"postgres">> {
  const log = path.join(folder, "logs", "postgres.log");
  await chmod(folder, 0o711);
  const progress = teller(log);
  const start = () => startEmbeddedPostgres({ dataDir: folder, progress, port: 0, settings: FAST });
  const kept = await KeptCluster.find();
  if (!(await kept.copyTo(folder))) {
    const first = await start();
    await migrateTemplate(first.superuserUrl);
    await first.stop();
    await kept.keep(folder);
  }
  const { superuserUrl, stop } = await start();
  const end = async () => {
    await Promise.all([stop(), kept.refilled()]);
  };
  return { part: { url: superuserUrl, template: TEMPLATE }, log, stop: end };
}

async function migrateTemplate(superuserUrl: string): Promise<void> {
  const admin = openDatabase(superuserUrl, { max: 1 });
  await admin.raw(`create database ${TEMPLATE}`);
  await admin.destroy();
  const templateUrl = new URL(superuserUrl);
  templateUrl.pathname = TEMPLATE;
  await migrate(templateUrl.href);
}
