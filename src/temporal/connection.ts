import { Client, Connection } from "@temporalio/client";
import { loadClientConnectConfig } from "@temporalio/envconfig";
import { NativeConnection } from "@temporalio/worker";
import pRetry from "p-retry";
import type { Logger } from "pino";

/** Where Temporal is: TLS, API key and namespace included. */
export type TemporalTarget = ReturnType<typeof loadClientConnectConfig> & { namespace: string };

/**
 * Temporal's own environment variables and profile files (TEMPORAL_ADDRESS, TEMPORAL_NAMESPACE, TEMPORAL_API_KEY,
 * TEMPORAL_TLS_…, TEMPORAL_PROFILE, TEMPORAL_CONFIG_FILE), so that a cluster and Temporal Cloud both work.
 *
 * @param embeddedAddress overrides them all when Temporal is a part of this process
 */
export function temporalTarget(environment: NodeJS.ProcessEnv, embeddedAddress?: string): TemporalTarget {
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
  const config = loadClientConnectConfig({ overrideEnvVars: given });
  return { ...config, namespace: config.namespace ?? "default" };
}

/** Connections of a worker process: one for the workers, one for the client. */
export interface TemporalConnections {
  native: NativeConnection;
  client: Client;
  namespace: string;
  close(): Promise<void>;
}

/** Connects, waiting for a Temporal that is not up yet; ends when `stopping` is aborted. */
export function connectTemporal(
  target: TemporalTarget,
  log: Logger,
  stopping: AbortSignal,
): Promise<TemporalConnections> {
  const { connectionOptions, namespace } = target;
  return pRetry(
    async () => {
      const native = await NativeConnection.connect(connectionOptions);
      const connection = await Connection.connect(
        connectionOptions as Parameters<typeof Connection.connect>[0],
      );
      return {
        native,
        namespace,
        client: new Client({ connection, namespace }),
        async close() {
          await Promise.allSettled([connection.close(), native.close()]);
        },
      };
    },
    {
      retries: Number.POSITIVE_INFINITY,
      minTimeout: 500,
      maxTimeout: 5_000,
      signal: stopping,
      onFailedAttempt: ({ error, attemptNumber }) => {
        if (attemptNumber === 1)
          log.warn({ err: error, address: connectionOptions.address }, "waiting for Temporal");
      },
    },
  );
}
