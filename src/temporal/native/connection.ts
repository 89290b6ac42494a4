import { Client, Connection, isGrpcServiceError, ServiceError } from "@temporalio/client";
import { NativeConnection, TransportError } from "@temporalio/worker";
import { ConfigError } from "../../config/index.ts";
import { STATUS_CODES, type StatusName } from "../../contract/errors.ts";
import { clientOptions, currentApiKey, type TemporalTarget } from "../target.ts";

/** The reason while nothing answers at Temporal's address. */
export const NO_TEMPORAL = "Temporal cannot be reached";
/** The timeout for Temporal's first response, in milliseconds. */
const CONNECT_TIMEOUT_MS = 5_000;
/** The statuses of calls that got no response. */
const NO_RESPONSE: ReadonlySet<StatusName> = new Set(["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"]);
/** The statuses of calls whose caller is not allowed to make them. */
const NO_ACCESS: ReadonlySet<StatusName> = new Set(["UNAUTHENTICATED", "PERMISSION_DENIED"]);

/**
 * Connects a worker process to Temporal: its workers by one connection, its client by another.
 *
 * @param ending closes the connections
 * @throws Error if Temporal does not respond or refuses access (see `whyUnavailable`), or `stopping` aborts
 */
export async function connectTemporal(
  target: TemporalTarget,
  stopping: AbortSignal,
  ending: AsyncDisposableStack,
) {
  const connection = Connection.lazy(clientOptions(target));
  ending.defer(() => connection.close());
  // Before the workers' connection, whose errors have the status only in their message.
  await connection.withAbortSignal(stopping, () =>
    connection.withDeadline(Date.now() + CONNECT_TIMEOUT_MS, () =>
      connection.workflowService.getSystemInfo({}),
    ),
  );
  const apiKey = currentApiKey(target);
  const native = await NativeConnection.connect({ ...target.connectionOptions, ...(apiKey && { apiKey }) });
  ending.defer(() => native.close());
  return { native, client: new Client({ connection, namespace: target.namespace }) };
}

/**
 * The reason why Temporal cannot be used, for operators. Undefined for errors that do not come from Temporal, its address or its
 * settings. Without the text of a refused access, which may repeat the API key.
 */
export function whyUnavailable(thrown: unknown): string | undefined {
  const error = thrown instanceof ServiceError ? thrown.cause : thrown;
  if (error instanceof ConfigError) return error.message;
  if (error instanceof TransportError) return NO_TEMPORAL;
  if (!isGrpcServiceError(error)) return undefined;
  const names = Object.keys(STATUS_CODES) as StatusName[];
  const status = names.find((name) => STATUS_CODES[name] === error.code);
  if (status === undefined || NO_RESPONSE.has(status)) return NO_TEMPORAL;
  if (!NO_ACCESS.has(status)) return `Temporal responds with ${status}: ${error.details}`;
  return `Temporal refuses access (${status}); check the API key, the client certificate, and their access to the namespace`;
}
