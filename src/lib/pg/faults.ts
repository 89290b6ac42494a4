import pRetry from "p-retry";
import type pg from "pg";

/**
 * Classes of database errors, by the reaction that they require.
 *
 * - `unavailable`: the database is down, starting, stopping, overloaded or read-only, or a statement timed out or was
 *   cancelled: retry with backoff.
 * - `conflict`: PostgreSQL aborted this transaction, for example in a deadlock: retry immediately.
 * - `stale statement`: the server has lost a prepared statement, or its result has other columns: prepare it again.
 * - `fault`: everything else, including data corruption (XX000 to XX002). Retrying does not help.
 */
export type DatabaseErrorClass = "unavailable" | "conflict" | "stale statement" | "fault";

/** Error classes by SQLSTATE. The first match wins. */
const STATES: readonly [RegExp, DatabaseErrorClass][] = [
  // Connection errors; insufficient memory, disk or connections; shutdown, crash, restart and idle timeouts.
  [/^(08...|53...|57P0[1235])$/, "unavailable"],
  // The server has become a standby or is read-only during a switchover.
  [/^25006$/, "unavailable"],
  // Timeouts of transactions that the role or the database sets.
  [/^25P0[34]$/, "unavailable"],
  // A statement timeout or cancelled statement; a lock timeout.
  [/^(57014|55P03)$/, "unavailable"],
  [/^(40001|40P01)$/, "conflict"],
  [/^26000$/, "stale statement"],
];
/** The function of PostgreSQL that reports a stale plan. The SQLSTATE of the error, 0A000, has other meanings too. */
const STALE_PLAN_ROUTINE = "RevalidateCachedQuery";
/** Error codes of sockets and name resolution. */
const SOCKET_CODES = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "EPIPE",
  "ETIMEDOUT",
  "ENOTFOUND",
  "EAI_AGAIN",
  "EHOSTUNREACH",
  "ENETUNREACH",
]);
/**
 * Messages of errors without a code from pg, its pool and knex. PostgreSQL's own errors, which have a severity, are told apart by
 * their codes: their messages are in the server's language.
 */
const UNAVAILABLE_WORDS =
  /timeout expired|timeout exceeded when trying to connect|Connection terminated|Client has encountered a connection error|not queryable|Query read timeout|Timeout acquiring a connection|server closed the connection|Unable to acquire a connection/i;

/** Classifies an error of a statement. */
export function databaseErrorClass(error: unknown): DatabaseErrorClass {
  if (!(error instanceof Error)) return "fault";
  if (error instanceof AggregateError) {
    const classes = error.errors.map(databaseErrorClass);
    return classes.find((each) => each !== "fault") ?? "fault";
  }
  const code = (error as NodeJS.ErrnoException).code ?? "";
  if (SOCKET_CODES.has(code)) return "unavailable";
  const known = STATES.find(([state]) => state.test(code));
  if (known) return known[1];
  if (code === "0A000" && (error as pg.DatabaseError).routine === STALE_PLAN_ROUTINE)
    return "stale statement";
  return !("severity" in error) && UNAVAILABLE_WORDS.test(error.message) ? "unavailable" : "fault";
}

/**
 * Whether PostgreSQL found a stored row or TOAST value damaged (XX001). Damaged indexes and disk errors do not count, because they
 * also fail statements whose rows are intact.
 */
export function isDamage(error: unknown): boolean {
  return error instanceof Error && (error as NodeJS.ErrnoException).code === "XX001";
}

/** Thrown if a session can only read, or is not of the kind that the connection URL asks for. */
export class UnfitSessionError extends Error {
  override name = "DatabaseError";
  /** The SQLSTATE of a write in a read-only transaction: nothing can be written to this server now. */
  code = "25006";
}

/** Whether nothing can be written to the server now: it is a standby, or its transactions are read-only. */
export function isReadOnlyFault(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.some(isReadOnlyFault);
  return (error as NodeJS.ErrnoException | null)?.code === "25006";
}

/** Whether retrying may succeed. */
export function isTransient(error: unknown): boolean {
  return databaseErrorClass(error) !== "fault";
}

/**
 * Calls `ask` until it succeeds, with growing, random pauses of 50 ms to 2 s. Throws errors that a retry cannot fix.
 *
 * @param options.signal stops the retries and throws its reason
 * @param options.onFirstFault called once, on the first transient error
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
