import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as wait } from "node:timers/promises";
import type { Knex } from "knex";
import { type ConnectedClient, requestCancel } from "./cancel-request.ts";

/** The interval between repeated cancel requests for a statement, in milliseconds. */
const CANCEL_INTERVAL_MS = 1_000;

/** The abort signal of the current API call, applied to its queries. */
const calls = new AsyncLocalStorage<AbortSignal | undefined>();

/** Runs work whose queries are cancelled in the database when the signal aborts. */
export function onBehalfOf<T>(signal: AbortSignal, work: () => T): T {
  return calls.run(signal, work);
}

/** Runs work that several calls share, so that no single call's end cancels it. */
export function onBehalfOfAll<T>(work: () => T): T {
  return calls.run(undefined, work);
}

/** Whether a query failed because its call ended. */
export function isGivenUp(error: unknown): boolean {
  return error instanceof GivenUpError || (error as { code?: string } | null)?.code === "57014";
}

/** Thrown if the call ended before its query started. */
export class GivenUpError extends Error {
  override name = "GivenUpError";
}

/** Runs a query. Cancels it in the database if its call ends first. */
export async function untilCallEnds<T>(db: Knex, query: Knex.ChainableInterface): Promise<T> {
  const signal = calls.getStore();
  if (!signal) return (await query) as T;
  const { client } = db;
  const connection = await client.acquireConnection();
  let ended: AbortController | undefined;
  let cancelled: Promise<void> | undefined;
  const cancel = () => {
    ended = new AbortController();
    cancelled = cancelUntil(ended.signal, connection);
  };
  try {
    if (signal.aborted) throw new GivenUpError("the call ended before this query began");
    signal.addEventListener("abort", cancel, { once: true });
    return (await query.connection(connection)) as T;
  } finally {
    signal.removeEventListener("abort", cancel);
    ended?.abort();
    // Until the cancellation has finished, it could hit the connection's next query.
    await cancelled;
    await client.releaseConnection(connection);
  }
}

/**
 * Repeats cancel requests until the statement has ended. One request may have no effect: the statement may not have
 * reached the server yet, for example while it waits for a pooler's connection.
 */
async function cancelUntil(ended: AbortSignal, connection: PooledConnection): Promise<void> {
  while (!ended.aborted) {
    try {
      await requestCancel(connection);
    } catch (error) {
      // The server may still act on the request and hit another query, so the pool must close the connection.
      connection.__knex__disposed = error;
    }
    await wait(CANCEL_INTERVAL_MS, undefined, { signal: ended }).catch(() => {});
  }
}

/** A connection of the pool. Knex closes connections marked as disposed instead of reusing them. */
interface PooledConnection extends ConnectedClient {
  __knex__disposed?: unknown;
}
