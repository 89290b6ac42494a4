import type { ConnectionOptions } from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import { ConfigError, readSecret, withSecretFiles } from "../config/index.ts";

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
  const settings = Object.entries(withSecretFiles(environment, ["TEMPORAL_API_KEY"]));
  const given = Object.fromEntries(settings.filter(([, value]) => value)) as Record<string, string>;
  const apiKeyFile = given[API_KEY_FILE];
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
 * The API key. That of TEMPORAL_API_KEY_FILE is read again, because another one may have replaced it since the start.
 *
 * @throws ConfigError if the file cannot be read or is empty
 */
export function currentApiKey({ apiKeyFile, connectionOptions }: TemporalTarget): string | undefined {
  return apiKeyFile === undefined ? connectionOptions.apiKey : readSecret(API_KEY_FILE, apiKeyFile);
}

/**
 * The options of a client's connection, of which each call carries the current API key, or the last one while the file cannot be read.
 * Without the channel argument, gRPC of Node applies `https_proxy` and `http_proxy`, also to 127.0.0.1; the workers' connections ignore
 * them.
 */
export function clientOptions(target: TemporalTarget): ConnectionOptions {
  let last = target.connectionOptions.apiKey as string;
  const apiKey = () => {
    try {
      last = currentApiKey(target) as string;
    } catch {
      // The worker logs why.
    }
    return last;
  };
  return {
    ...(target.connectionOptions as ConnectionOptions),
    ...(target.apiKeyFile && { apiKey }),
    channelArgs: { "grpc.enable_http_proxy": 0 },
  };
}
