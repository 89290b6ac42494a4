import pRetry from "p-retry";

/**
 * SQLSTATE classes and codes that a second try can cure: connections, resources, shutdown, deadlocks, and a server that
 * only reads, as one does during a failover.
 */
const TRANSIENT_STATES = /^(08...|53...|57P0.|57014|40001|40P01|55P03|25006|XX000)$/;
/** Socket faults on the way to the server. */
const TRANSIENT_CODES = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
]);
const TRANSIENT_WORDS =
  /timeout exceeded when trying to connect|Connection terminated|Client has encountered a connection error|not queryable|Query read timeout|Timeout acquiring a connection|server closed the connection|Unable to acquire a connection/i;

/** Whether the database may answer if it is asked again: it is away, starting, stopping, or chose us in a deadlock. */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof AggregateError) return error.errors.some(isTransient);
  const code = (error as NodeJS.ErrnoException).code ?? "";
  return TRANSIENT_CODES.has(code) || TRANSIENT_STATES.test(code) || TRANSIENT_WORDS.test(error.message);
}

/**
 * Asks again until the database answers; faults that asking again cannot cure are thrown.
 *
 * @param options.signal ends the waiting; its reason is thrown then
 * @param options.onFirstFault told once, when the waiting begins
 */
export function untilAnswered<T>(
  ask: () => Promise<T>,
  options: { signal?: AbortSignal; onFirstFault?: (error: Error) => void } = {},
): Promise<T> {
  return pRetry(ask, {
    retries: Number.POSITIVE_INFINITY,
    minTimeout: 50,
    maxTimeout: 2_000,
    randomize: true,
    shouldRetry: ({ error }) => isTransient(error),
    onFailedAttempt: ({ error, attemptNumber }) => {
      if (attemptNumber === 1 && isTransient(error)) options.onFirstFault?.(error);
    },
    ...(options.signal ? { signal: options.signal } : {}),
  });
}
