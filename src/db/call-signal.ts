import { AsyncLocalStorage } from "node:async_hooks";
import type { Knex } from "knex";

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
  let cancelled: Promise<unknown> | undefined;
  const cancel = () => {
    cancelled = client.cancelQuery(connection).catch(() => {});
  };
  try {
    if (signal.aborted) throw new GivenUpError("the call ended before this query began");
    signal.addEventListener("abort", cancel, { once: true });
    return (await query.connection(connection)) as T;
  } finally {
    signal.removeEventListener("abort", cancel);
    // Until then the cancellation could hit whatever query the connection is used for next.
    await cancelled;
    await client.releaseConnection(connection);
  }
}
