import { AsyncLocalStorage } from "node:async_hooks";
import { setTimeout as wait } from "node:timers/promises";
import type { Knex } from "knex";
import { type ConnectedClient, requestCancel } from "./cancel-request.ts";

/** The interval between repeated cancel requests for a statement, in milliseconds. */
const CANCEL_INTERVAL_MS = 1_000;

/** Limits the statements of a call, so that they leave connections for other calls. */
export interface Turns {
  /** The maximum duration of a statement, and the error of one that takes longer. Defaults to the maximum of the pool. */
  limit?: { ms: number; error: () => Error };
  /**
   * Runs a statement when it is its turn.
   *
   * @param signal ends the wait; undefined for a statement that several calls share
   * @throws DomainError RESOURCE_EXHAUSTED if too many calls of the key wait
   */
  run<T>(statement: () => Promise<T>, signal: AbortSignal | undefined): Promise<T>;
}

/** An API call whose queries are run. */
interface Call {
  /** Cancels the queries. Undefined for queries that several calls share. */
  signal: AbortSignal | undefined;
  turns: Turns | undefined;
  /** Called when a query ends: from then on, the thread works on the call. */
  onResult?: (() => void) | undefined;
}

const calls = new AsyncLocalStorage<Call | undefined>();

/**
 * Runs work whose queries are cancelled in the database when the signal aborts.
 *
 * @param options.turns the turns that the queries take. Defaults to none
 * @param options.onResult called when a query ends. Defaults to nothing
 */
export function onBehalfOf<T>(
  signal: AbortSignal,
  work: () => T,
  { turns, onResult }: Partial<Omit<Call, "signal">> = {},
): T {
  return calls.run({ signal, turns, onResult }, work);
}

/**
 * Returns messages whose queries belong to the call, as in `onBehalfOf`. A generator's code runs when a message is read, and the
 * reader, such as a listener, belongs to no call.
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

/** Runs work that several calls share, so that no single call's end cancels it. @param turns as in `onBehalfOf` */
export function onBehalfOfAll<T>(work: () => T, turns?: Turns): T {
  return calls.run({ signal: undefined, turns }, work);
}

/** The turns that the current call's queries take; undefined for none. */
export function turnsOfCall(): Turns | undefined {
  return calls.getStore()?.turns;
}

/** Whether a query failed because its call ended. */
export function isGivenUp(error: unknown): boolean {
  return error instanceof GivenUpError || (error as { code?: string } | null)?.code === "57014";
}

/** Thrown if the call ended before its query started. */
export class GivenUpError extends Error {
  override name = "GivenUpError";
}

/** Runs a statement when it is its call's turn; immediately in a transaction, which has its connection. */
export function inTurn<T>(db: Knex, statement: () => Promise<T>): Promise<T> {
  const call = calls.getStore();
  return call?.turns && !db.isTransaction ? call.turns.run(statement, call.signal) : statement();
}

/** Runs a transaction when it is its call's turn. Its statements take no turns: those that have none would wait for it. */
export function transactionInTurn<T>(db: Knex, transaction: () => Promise<T>): Promise<T> {
  return inTurn(db, () =>
    calls.run({ signal: undefined, ...calls.getStore(), turns: undefined }, transaction),
  );
}

/**
 * Runs a query. Cancels it in the database if its call ends first, or if the query takes longer than the call's queries may.
 *
 * @throws the error of the call's limit if it takes too long
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
    // Until the cancellation has finished, it could hit the connection's next query.
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
