import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as wait } from "node:timers/promises";
import type { Knex } from "knex";
import { type ConnectedClient, requestCancel } from "./cancel-request.ts";

/** Time between two requests to cancel the same statement, in milliseconds. */
const REPEAT_MS = 1_000;

/** The signal that ends the call under way, for the queries that are made on its behalf. */
const calls = new AsyncLocalStorage<AbortSignal | undefined>();

/** Runs work whose queries are given up when the signal comes: each is cancelled in the database. */
export function onBehalfOf<T>(signal: AbortSignal, work: () => T): T {
  return calls.run(signal, work);
}

/** Runs work that several calls share, and that therefore ends with none of them. */
export function onBehalfOfAll<T>(work: () => T): T {
  return calls.run(undefined, work);
}

/** Whether a query failed because it was given up. */
export function isGivenUp(error: unknown): boolean {
  return error instanceof GivenUpError || (error as { code?: string } | null)?.code === "57014";
}

/** The call ended before its query began. */
export class GivenUpError extends Error {
  override name = "GivenUpError";
}

/** Runs a query, and cancels it in the database when the call that it is made for ends first. */
export async function untilCallEnds<T>(db: Knex, query: Knex.Raw): Promise<T> {
  const signal = calls.getStore();
  if (!signal) return (await query) as T;
  const { client } = db;
  const connection = await client.acquireConnection();
  const ended = new AbortController();
  let cancelled: Promise<void> | undefined;
  const cancel = () => {
    cancelled = cancelUntil(ended.signal, connection);
  };
  try {
    if (signal.aborted) throw new GivenUpError("the call ended before this query began");
    signal.addEventListener("abort", cancel, { once: true });
    return (await query.connection(connection)) as T;
  } finally {
    signal.removeEventListener("abort", cancel);
    ended.abort();
    // Until then the cancellation could hit whatever query the connection is used for next.
    await cancelled;
    await client.releaseConnection(connection);
  }
}

/**
 * Cancels the statement of a connection until it has ended. One request may not be enough: it has no effect on a statement
 * that has not reached the server yet, such as one that waits for a pooler's connection.
 */
async function cancelUntil(ended: AbortSignal, connection: PooledConnection): Promise<void> {
  while (!ended.aborted) {
    try {
      await requestCancel(connection);
    } catch (error) {
      // It may still be acted upon, and must not hit another query: the pool closes the connection.
      connection.__knex__disposed = error;
    }
    await wait(REPEAT_MS, undefined, { signal: ended }).catch(() => {});
  }
}

/** A connection of the pool; knex closes one that is marked as disposed instead of using it again. */
interface PooledConnection extends ConnectedClient {
  __knex__disposed?: unknown;
}
