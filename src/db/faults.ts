import pRetry from "p-retry";

/**
 * What an error of the database calls for.
 *
 * - `unavailable`: the database is away, starting, stopping, overloaded or only reads: wait and repeat.
 * - `conflict`: PostgreSQL chose this transaction to end, in a deadlock for example: repeat at once.
 * - `stale statement`: the server does not know a prepared statement any more, or its result has other columns: prepare
 *   it again.
 * - `fault`: everything else. Repeating changes nothing; data corruption (XX000 to XX002) is among it.
 */
export type DatabaseErrorClass = "unavailable" | "conflict" | "stale statement" | "fault";

/** By SQLSTATE: the first that matches. */
const STATES: readonly [RegExp, DatabaseErrorClass][] = [
  // Connections; resources such as memory, disk and connections; shutdown, crash, restart and idle time-outs.
  [/^(08...|53...|57P0[1235])$/, "unavailable"],
  // A server that has become a standby, or is made read-only for a switch-over.
  [/^25006$/, "unavailable"],
  // A statement or a lock that took too long.
  [/^(57014|55P03)$/, "unavailable"],
  [/^(40001|40P01)$/, "conflict"],
  [/^26000$/, "stale statement"],
];
/** Says so of PostgreSQL's code 0A000, which stands for many other things too. */
const STALE_PLAN = /cached plan must not change result type/;
/** Sockets and names on the way to the server. */
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
/** What pg, its pool and knex say without a code. */
const UNAVAILABLE_WORDS =
  /timeout expired|timeout exceeded when trying to connect|Connection terminated|Client has encountered a connection error|not queryable|Query read timeout|Timeout acquiring a connection|server closed the connection|Unable to acquire a connection/i;

/** Tells what to do about an error of a statement. */
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
  if (code === "0A000" && STALE_PLAN.test(error.message)) return "stale statement";
  return UNAVAILABLE_WORDS.test(error.message) ? "unavailable" : "fault";
}

/** Whether the database may answer if it is asked again. */
export function isTransient(error: unknown): boolean {
  return databaseErrorClass(error) !== "fault";
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
