import { Client, Connection } from "@temporalio/client";
import { NativeConnection } from "@temporalio/worker";
import pRetry from "p-retry";
import type { Logger } from "pino";
import { followApiKey } from "./api-key.ts";
import { clientOptions, type TemporalTarget, withCurrentApiKey } from "./target.ts";

/** The Temporal connections of a worker process: one for the workers, one for the client. */
export interface TemporalConnections {
  native: NativeConnection;
  client: Client;
  namespace: string;
  close(): Promise<void>;
}

/**
 * Connects to Temporal. Retries until it is available or `stopping` aborts. Each attempt uses the API key that
 * TEMPORAL_API_KEY_FILE then holds.
 */
export function connectTemporal(
  target: TemporalTarget,
  log: Logger,
  stopping: AbortSignal,
): Promise<TemporalConnections> {
  return pRetry(
    async () => {
      const current = withCurrentApiKey(target);
      const { connectionOptions, namespace } = current;
      const native = await NativeConnection.connect(connectionOptions);
      const connection = Connection.lazy(clientOptions(connectionOptions));
      const closeBoth = () => Promise.allSettled([connection.close(), native.close()]);
      try {
        await connection.ensureConnected();
      } catch (error) {
        await closeBoth();
        throw error;
      }
      const stopFollowing = followApiKey(current, [native, connection], log);
      return {
        native,
        namespace,
        client: new Client({ connection, namespace }),
        async close() {
          stopFollowing();
          await closeBoth();
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
          log.warn({ err: error, address: target.connectionOptions.address }, "waiting for Temporal");
      },
    },
  );
}
