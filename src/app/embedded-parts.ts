import path from "node:path";
import type { Config } from "../config/index.ts";
import { lockDataDir, startEmbeddedPostgres, startEmbeddedTemporal } from "../lib/dev-servers/index.ts";
import type { Progress } from "../lib/process/index.ts";
import { SEARCH_ATTRIBUTES } from "../temporal/index.ts";

/** The embedded servers that this process started. */
export interface EmbeddedParts {
  databaseUrl: string | undefined;
  temporalAddress: string | undefined;
  temporalUiUrl: string | undefined;
  /** Stops all of them, the database last. Rejects if one cannot be stopped. */
  stop(): Promise<void>;
}

/**
 * Starts the servers that the configuration does not name: PostgreSQL and Temporal. Their state is in DATA_DIR, which
 * only one service may use at a time. If `signal` aborts, stops what has started and rejects.
 */
export async function startEmbeddedParts(
  config: Pick<Config, "role" | "dataDir" | "database" | "temporal">,
  environment: NodeJS.ProcessEnv,
  progress: Progress,
  signal?: AbortSignal,
): Promise<EmbeddedParts> {
  const needsTemporal = config.role !== "api" && !config.temporal.external;
  const needsDatabase = config.database.url === undefined;
  const parts: EmbeddedParts = {
    databaseUrl: undefined,
    temporalAddress: undefined,
    temporalUiUrl: undefined,
    stop: async () => {},
  };
  if (!needsTemporal && !needsDatabase) return parts;

  await using starting = new AsyncDisposableStack();
  const dataDir = path.resolve(config.dataDir);
  const lock = await lockDataDir(dataDir);
  starting.defer(() => lock.release());
  const common = { dataDir, progress, superviseRestart: true, ...(signal ? { signal } : {}) };
  if (needsDatabase) {
    const postgres = await startEmbeddedPostgres(common);
    starting.defer(() => postgres.stop());
    parts.databaseUrl = postgres.url;
  }
  if (needsTemporal) {
    const temporal = await startEmbeddedTemporal({
      ...common,
      namespace: environment.TEMPORAL_NAMESPACE || "default",
      searchAttributes: SEARCH_ATTRIBUTES,
    });
    starting.defer(() => temporal.stop());
    parts.temporalAddress = temporal.address;
    parts.temporalUiUrl = temporal.uiUrl;
  }
  const started = starting.move();
  return { ...parts, stop: () => started.disposeAsync() };
}
