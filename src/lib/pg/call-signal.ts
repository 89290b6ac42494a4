import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as wait } from "node:timers/promises";
import type { Knex } from "knex";
import { type ConnectedClient, requestCancel } from "./cancel-request.ts";

/** The interval between repeated cancel requests for a statement, in milliseconds. */
const CANCEL_INTERVAL_MS = 1_000;

/** The turns that the statements of a call take, so that they leave connections for other calls. */
export interface Turns {
  /**
   * The maximum duration of a statement outside of transactions, in milliseconds, and the error of one that takes longer. Defaults to
   * the timeout of the pool.
   */
  limit?: { ms: number; error: () => Error };
  /**
   * Runs a statement when it is its turn.
   *
   * @param signal ends the wait for the turn; undefined for a statement that several calls share
   * @throws the signal's reason, or an error of the implementation if too many statements wait
   */
  run<T>(statement: () => Promise<T>, signal: AbortSignal | undefined): Promise<T>;
}

/** A call: work for one client, such as an API call, or for several clients together. */
interface Call {
  /** Cancels the queries. Undefined for queries that several calls share. */
  signal: AbortSignal | undefined;
  turns: Turns | undefined;
  /** Called when a query ends and the thread continues with the call. */
  onResult?: (() => void) | undefined;
}

const calls = new AsyncLocalStorage<Call | undefined>();

/**
 * Runs work whose queries are cancelled in the database when the signal aborts.
 *
 * @param options.turns the turns that the queries take. Defaults to none
 * @param options.onResult called when a query ends and the thread continues with the work. Defaults to nothing
 */
export function onBehalfOf<T>(
  signal: AbortSignal,
  work: () => T,
  { turns, onResult }: Partial<Omit<Call, "signal">> = {},
): T {
  return calls.run({ signal, turns, onResult }, work);
}

/**
 * Wraps messages so that the queries that produce them belong to the call, as in `onBehalfOf`. A generator's code runs when its
 * reader asks for the next message, and the reader itself, such as an HTTP server, belongs to no call.
 */
export function eachOnBehalfOf<T>(
  signal: AbortSignal,
  messages: AsyncIterable<T>,
  { turns, onResult }: Partial<Omit<Call, "signal">> = {},
): AsyncIterable<T> {
  const call = { signal, turns, onResult };
  return {
    [Symbol.asyncIterator]() {
      const iterator = messages[Symbol.asyncIterator]();
      return {
        next: () => calls.run(call, () => iterator.next()),
        return: async () => {
          await calls.run(call, () => iterator.return?.());
          return { done: true, value: undefined };
        },
      };
    },
  };
}

/** Runs work that several calls share: the end of a single call does not cancel its queries. @param turns as in `onBehalfOf` */
export function onBehalfOfAll<T>(work: () => T, turns?: Turns): T {
  return calls.run({ signal: undefined, turns }, work);
}

/** The turns that the current call's queries take; undefined for none. */
export function turnsOfCall(): Turns | undefined {
  return calls.getStore()?.turns;
}

/** Whether a query was not started, or was cancelled, because its call ended. Also true after the server's `statement_timeout`. */
export function isGivenUp(error: unknown): boolean {
  return error instanceof GivenUpError || (error as { code?: string } | null)?.code === "57014";
}

/** Thrown if the call ended before its query started. */
export class GivenUpError extends Error {
  override name = "GivenUpError";
}

/** Runs a statement when it is its call's turn. In a transaction, which already has a connection, runs it immediately. */
export function inTurn<T>(db: Knex, statement: () => Promise<T>): Promise<T> {
  const call = calls.getStore();
  return call?.turns && !db.isTransaction ? call.turns.run(statement, call.signal) : statement();
}

/**
 * Runs a transaction when it is its call's turn. The statements in it take no turns, not even statements on other connections: a
 * transaction that holds one turn and waits for another could wait forever.
 */
export function transactionInTurn<T>(db: Knex, transaction: () => Promise<T>): Promise<T> {
  return inTurn(db, () =>
    calls.run({ signal: undefined, ...calls.getStore(), turns: undefined }, transaction),
  );
}

/**
 * Runs a query. Cancels it in the database if its call ends first, or if the query exceeds the `limit` of the call's turns.
 *
 * @throws GivenUpError if the call ended before the query started; the error of the limit if the query exceeds it
 */
export async function untilCallEnds<T>(db: Knex, query: Knex.ChainableInterface): Promise<T> {
  const call = calls.getStore();
  const signal = call?.signal;
  const limit = db.isTransaction ? undefined : call?.turns?.limit;
  if (!signal && !limit) return (await query) as T;
  const { client } = db;
  const connection = await client.acquireConnection();
  let ended: AbortController | undefined;
  let cancelled: Promise<void> | undefined;
  const cancel = () => {
    if (ended) return;
    ended = new AbortController();
    cancelled = cancelUntil(ended.signal, connection);
  };
  let isTooLong = false;
  const onTooLong = () => {
    isTooLong = true;
    cancel();
  };
  const timer = limit && setTimeout(onTooLong, limit.ms);
  try {
    if (signal?.aborted) throw new GivenUpError("the call ended before this query began");
    signal?.addEventListener("abort", cancel, { once: true });
    return (await query.connection(connection)) as T;
  } catch (error) {
    throw limit && isTooLong && isGivenUp(error) ? limit.error() : error;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", cancel);
    ended?.abort();
    // A cancellation that has not finished could hit the connection's next query.
    await cancelled;
    await client.releaseConnection(connection);
    call?.onResult?.();
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
