import type { ConnectionOptions } from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import type { Logger } from "pino";
import { ConfigError } from "../../config/config-error.ts";
import { readSecret } from "../../config/secret-files.ts";
import { watchFiles } from "../../process/watched-files.ts";

/** The address of Temporal with TLS, API key and namespace. */
export type TemporalTarget = ReturnType<typeof loadClientConnectConfig> & {
  namespace: string;
  /** The file with the API key, which is read again when it changes. Undefined: the key is fixed, or there is none. */
  apiKeyFile?: string;
};

/** The setting with the path of the API key's file. */
const API_KEY_FILE = "TEMPORAL_API_KEY_FILE";
/** Names the embedded Temporal to the processes that the service starts. Not a setting. */
export const EMBEDDED_ADDRESS = "EMBEDDED_TEMPORAL_ADDRESS";

/**
 * Reads Temporal's own environment variables and profile files (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE,
 * TEMPORAL_API_KEY, TEMPORAL_TLS_…, TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE), for clusters and Temporal Cloud; and
 * TEMPORAL_API_KEY_FILE, a file with the API key.
 *
 * @param embeddedAddress the address of an embedded Temporal. Of the variables and files, only TEMPORAL_NAMESPACE applies then
 * @throws ConfigError if they cannot be used
 */
export function temporalTarget(
  environment: NodeJS.ProcessEnv,
  embeddedAddress = environment[EMBEDDED_ADDRESS],
): TemporalTarget {
  if (embeddedAddress !== undefined) {
    return {
      connectionOptions: { address: embeddedAddress },
      namespace: environment.TEMPORAL_NAMESPACE || "default",
    };
  }
  const given = Object.fromEntries(Object.entries(environment).filter(([, value]) => value)) as Record<
    string,
    string
  >;
  const apiKeyFile = given[API_KEY_FILE];
  if (apiKeyFile !== undefined) {
    if (given.TEMPORAL_API_KEY)
      throw new ConfigError(`TEMPORAL_API_KEY and ${API_KEY_FILE} are both set; set one of them`);
    given.TEMPORAL_API_KEY = readSecret(API_KEY_FILE, apiKeyFile);
  }
  try {
    const config = loadClientConnectConfig({ overrideEnvVars: given });
    return { ...config, namespace: config.namespace ?? "default", ...(apiKeyFile ? { apiKeyFile } : {}) };
  } catch (error) {
    const file = given.TEMPORAL_CONFIG_FILE ?? "temporal.toml in the configuration folder of the user";
    // The SDK expects at least one profile. Further lines of its messages quote the file, which may hold an API key.
    const reason =
      error instanceof TypeError ? "it has no profile" : (error as Error).message.split("\n", 1)[0];
    throw new ConfigError(
      `Temporal's configuration (${file}) cannot be used: ${reason}; correct or remove the file, or change TEMPORAL_PROFILE`,
    );
  }
}

/**
 * The target with the API key that TEMPORAL_API_KEY_FILE holds now: since the start, another key may have replaced it.
 *
 * @throws ConfigError if the file cannot be read or is empty
 */
export function withCurrentApiKey(target: TemporalTarget): TemporalTarget {
  const { apiKeyFile, connectionOptions } = target;
  if (apiKeyFile === undefined) return target;
  const apiKey = readSecret(API_KEY_FILE, apiKeyFile);
  return { ...target, connectionOptions: { ...connectionOptions, apiKey } };
}

/**
 * Replaces the API key of connections whenever the file of TEMPORAL_API_KEY_FILE changes. The calls that follow carry the
 * new key; open ones are not interrupted.
 *
 * @returns stops watching
 */
export function followApiKey(
  { apiKeyFile, connectionOptions }: TemporalTarget,
  connections: readonly { setApiKey(key: string): Promise<void> | void }[],
  log: Logger,
): () => void {
  if (apiKeyFile === undefined) return () => {};
  let current = connectionOptions.apiKey;
  return watchFiles(
    [apiKeyFile],
    [current ?? ""],
    async ([content = ""]) => {
      const key = content.trim();
      if (key === "") throw new Error("the file is empty");
      // The file may hold white space around the key in use.
      if (key === current) return;
      await Promise.all(connections.map((connection) => connection.setApiKey(key)));
      current = key;
      log.info({ apiKeyFile }, "Temporal's API key was reloaded");
    },
    (err) => log.warn({ err, apiKeyFile }, "reloading Temporal's API key failed; the old one stays in use"),
  );
}

/**
 * The options of a client's connection. Without the channel argument, gRPC of Node applies `https_proxy` and `http_proxy`,
 * also to 127.0.0.1; the workers' connections ignore them.
 */
export function clientOptions(connectionOptions: TemporalTarget["connectionOptions"]): ConnectionOptions {
  return { ...(connectionOptions as ConnectionOptions), channelArgs: { "grpc.enable_http_proxy": 0 } };
}
