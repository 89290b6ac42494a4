import type { Meter } from "@opentelemetry/api";
import type { Logger } from "pino";
import { type Config, deliversInItself } from "../config/index.ts";
import {
  budgetWarning,
  checkPooler,
  openDatabases,
  readConnectionBudget,
  readReplica,
  untilAnswered,
} from "../lib/pg/index.ts";
import { createOperationDuration, observePool, observeReplicaLag } from "../metrics/index.ts";
import { MIGRATION_BLOCKED, migrate } from "../schema/index.ts";
import { createSecretBox, type SecretBox } from "../webhooks/index.ts";
import { ensureFirstAdmin } from "./first-admin.ts";
import { findSecretKey } from "./instance-secrets.ts";
import { checkSecretKey } from "./secret-keys.ts";

/** The database, and what decrypts the secrets in it. */
export type Stores = Awaited<ReturnType<typeof openStores>>;

/**
 * Opens the database and finds SECRET_KEY. Waits for nothing: the database may be away.
 *
 * @param started closes what is opened here
 * @param parts.measures whether durations of statements are measured
 */
export async function openStores(
  config: Config,
  started: AsyncDisposableStack,
  {
    databaseUrl,
    meter,
    measures,
    log,
  }: { databaseUrl: string; meter: Meter; measures: boolean; log: Logger },
) {
  const { role, dataDir, database } = config;
  const { poolSize, preparedStatements, readUrl } = database;
  const { close, ...databases } = openDatabases(databaseUrl, {
    directUrl: database.directUrl,
    poolSize,
    preparedStatements,
    delivers: role !== "api" && deliversInItself(config),
    operationDuration: measures ? createOperationDuration(meter) : undefined,
  });
  started.defer(close);
  observePool(meter, databases.db);
  const reads =
    readUrl === undefined || role === "worker"
      ? undefined
      : readReplica(databases.db, readUrl, { poolSize, preparedStatements, log });
  if (reads) {
    observeReplicaLag(meter, reads.lagMs);
    started.defer(reads.close);
  }
  const secretKey = await findSecretKey(config.secretKey, dataDir);
  const secrets = createSecretBox(secretKey, config.previousSecretKeys);
  return { ...databases, databaseUrl, ...(reads ? { reads } : {}), secretKey, secrets };
}

/**
 * Waits for the database, migrates it, and checks that it fits: the pooler, SECRET_KEY, the number of connections.
 *
 * @returns the file with the first administrator's key, if one was created
 */
export function prepareDatabase(
  config: Config,
  {
    databaseUrl,
    db,
    directDb,
    directUrl,
    secrets,
  }: Pick<Stores, "databaseUrl" | "db" | "directDb" | "directUrl"> & { secrets: SecretBox },
  { signal, log }: { signal: AbortSignal; log: Logger },
): Promise<string | undefined> {
  const { role, adminKey, dataDir, database } = config;
  return untilAnswered(
    async () => {
      await checkPooler(databaseUrl, directUrl, database.preparedStatements);
      await migrate(directUrl, {
        retentionDays: config.dispatch.retentionDays,
        signal,
        onBlocked: (err) => log.warn({ err }, MIGRATION_BLOCKED),
      });
      await checkSecretKey(db, secrets);
      // Behind a pooler, the pooler decides how many connections PostgreSQL gets.
      if (directDb === db) {
        const pools = 1 + (deliversInItself(config) || role === "api" ? 0 : config.delivery.processes);
        const budget = await readConnectionBudget(db, database.poolSize);
        const warning = budgetWarning(budget, database.poolSize, pools);
        if (warning) log.warn(warning);
      }
      return ensureFirstAdmin(db, { adminKey, dataDir, database });
    },
    { signal, onFirstFault: (err) => log.warn({ err }, "waiting for the database") },
  );
}
