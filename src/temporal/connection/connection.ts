import { Client, Connection, isGrpcServiceError, ServiceError } from "@temporalio/client";
import { NativeConnection } from "@temporalio/worker";
import pRetry from "p-retry";
import type { Logger } from "pino";
import { ConfigError } from "../../config/config-error.ts";
import { STATUS_CODES, type StatusName } from "../../contract/errors.ts";
import { followApiKey } from "./api-key.ts";
import { clientOptions, type TemporalTarget, withCurrentApiKey } from "./target.ts";

/** The Temporal connections of a worker process: one for the workers, one for the client. */
export interface TemporalConnections {
  native: NativeConnection;
  client: Client;
  namespace: string;
  close(): Promise<void>;
}

/** The reason while nothing answers at Temporal's address. */
export const NO_TEMPORAL = "Temporal cannot be reached";
/** The timeout for the status with which Temporal refuses a connection, in milliseconds. */
const STATUS_TIMEOUT_MS = 2_000;
/** The statuses of calls that got no response. */
const NO_RESPONSE: ReadonlySet<StatusName> = new Set(["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"]);
/** The statuses of calls whose caller is not allowed to make them. */
const NO_ACCESS: ReadonlySet<StatusName> = new Set(["UNAUTHENTICATED", "PERMISSION_DENIED"]);

/**
 * Connects to Temporal. Retries until it is available or `stopping` aborts. Each attempt uses the API key that
 * TEMPORAL_API_KEY_FILE then holds.
 *
 * @param tell called with the reason of each failure, without the text of Temporal's response
 */
export function connectTemporal(
  target: TemporalTarget,
  log: Logger,
  stopping: AbortSignal,
  tell: (reason: string) => void = () => {},
): Promise<TemporalConnections> {
  let logged: string | undefined;
  return pRetry(
    async () => {
      const current = withCurrentApiKey(target);
      const { connectionOptions, namespace } = current;
      const connection = Connection.lazy(clientOptions(connectionOptions));
      let native: NativeConnection | undefined;
      const closeBoth = () => Promise.allSettled([connection.close(), native?.close()]);
      try {
        native = await NativeConnection.connect(connectionOptions).catch(async (error: unknown) => {
          throw (await refusalOf(connection, stopping)) ?? error;
        });
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
      onFailedAttempt: ({ error }) => {
        const refused = whyRefused(error);
        const reason = refused ?? (error instanceof ConfigError ? error.message : NO_TEMPORAL);
        tell(reason);
        if (reason === logged) return;
        logged = reason;
        const { address } = target.connectionOptions;
        // The text of a refusal may repeat the API key.
        log.warn({ ...(refused ? {} : { err: error }), reason, address }, "waiting for Temporal");
      },
    },
  );
}

/**
 * The error with which Temporal responds to a call; undefined if it does not refuse the call. The error of the workers'
 * connection has the status only in its message.
 */
async function refusalOf(connection: Connection, stopping: AbortSignal): Promise<Error | undefined> {
  try {
    await connection.withAbortSignal(stopping, () =>
      connection.withDeadline(Date.now() + STATUS_TIMEOUT_MS, () =>
        connection.workflowService.getSystemInfo({}),
      ),
    );
  } catch (error) {
    if (whyRefused(error) !== undefined) return error as Error;
  }
  return undefined;
}

/** The reason why Temporal refused a call, without the text of its response; undefined if there was no response. */
export function whyRefused(thrown: unknown): string | undefined {
  const error = thrown instanceof ServiceError ? thrown.cause : thrown;
  if (!isGrpcServiceError(error)) return undefined;
  const names = Object.keys(STATUS_CODES) as StatusName[];
  const status = names.find((name) => STATUS_CODES[name] === error.code);
  if (status === undefined || NO_RESPONSE.has(status)) return undefined;
  if (!NO_ACCESS.has(status)) return `Temporal responds with ${status}`;
  return `Temporal refuses access (${status}); check the API key, the client certificate, and their access to the namespace`;
}
