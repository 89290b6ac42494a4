import type { Client, Dispatcher } from "undici";
import type { AddressGuard } from "./address-guard.ts";
import type { ConnectionTrace } from "./connection-trace.ts";
import { ResponseHead } from "./response-head.ts";
import type { TlsIdentity } from "./tls-identity.ts";

/**
 * The maximum age at which a connection takes another request, in milliseconds. A new connection resolves the host name again, so
 * the limit bounds how long a changed DNS record has no effect.
 */
const MAX_CONNECTION_AGE_MS = 300_000;
/** Error codes of a request that was sent while the server closed the connection. */
const CLOSED_CONNECTION_CODES = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);

/** A connection, established or not yet, and its undici client. */
interface Kept {
  /**
   * The origin, followed by a space and the id of the TLS identity if there is one, and by ` guarded` if a guard of the request's own
   * checked the address. The connection takes only requests of the same pool. Origins and ids contain no space, so pools do not collide.
   */
  readonly pool: string;
  readonly client: Client;
  /** Aborted if the connection is dropped before it is established. */
  readonly connecting: AbortController;
  /** Reads the start of each response. */
  readonly head: ResponseHead;
  /** The time at which the socket connected, in milliseconds of `performance.now()`; undefined without a socket. */
  since: number | undefined;
  /** Whether the current socket has already completed a request. */
  isReused: boolean;
  isIdle: boolean;
}

type RequestOptions = Dispatcher.DispatchOptions & { origin: string };

/** Options for the connection of a request. */
export interface ConnectionOptions {
  /** The client certificate and trusted authorities. Undefined for no client certificate and the public authorities. */
  tls?: TlsIdentity | undefined;
  /** Checks the address instead of the client's own guard. The same one for all requests that have one. */
  guard?: AddressGuard;
  /**
   * Called before a new connection is opened for the request; again if the request is resent over another one. Not called if an idle
   * connection is reused.
   */
  onOpen?: () => void;
  /** Gets how a new connection was opened. Unset if an idle connection is reused. */
  trace?: ConnectionTrace | undefined;
}

/**
 * Creates the client of a connection, and attaches the reader of responses to its socket. The signal aborts when the connection is
 * dropped before it is established.
 */
export type NewClient = (
  origin: string,
  connection: ConnectionOptions,
  signal: AbortSignal,
  head: ResponseHead,
) => Client;

/** Sends requests, each over a connection of a pool. */
export type Dispatching = Pick<Connections, "dispatch">;

/**
 * The connection pool of a process. A request uses the most recently used idle connection to its origin with its TLS
 * identity, or a new one.
 * If a reused connection closes before the first byte of the response, the request is sent once more over a new
 * connection: the server probably closed the idle connection while the request was on its way.
 *
 * Undici's Pool with a factory fails most tests of `lib/egress/connections`. A Pool uses a connection again only some turns of the
 * event loop after its response, and opens another one for a request before that ("a request uses the most recently used
 * connection"). A request that is given up keeps its connection connecting ("is closed at once"). Pool and Agent limit the connections
 * of each origin, not those of a process ("the one that is idle longest is closed"), and do not tell which connection a request has.
 */
export class Connections {
  readonly #maxConnections: number;
  readonly #newClient: NewClient;
  readonly #idle = new Map<string, Kept[]>();
  /** All connections. The idle ones are in the order of their last use, the longest idle first. */
  readonly #all = new Set<Kept>();

  /**
   * @param maxConnections the number of connections, idle and in use, above which the longest idle one is closed when a request ends.
   *   Does not limit the connections in use
   */
  constructor(maxConnections: number, newClient: NewClient) {
    this.#maxConnections = maxConnections;
    this.#newClient = newClient;
  }

  /**
   * `connections`: the number of established connections, idle and in use. `idleHosts`: the number of pools (origin and TLS identity)
   * with idle connections.
   */
  get size(): { connections: number; idleHosts: number } {
    const open = [...this.#all].filter(({ since }) => since !== undefined);
    return { connections: open.length, idleHosts: this.#idle.size };
  }

  /**
   * Sends a request. If its status line has been received, the status is reported, also if an error follows.
   *
   * @returns a function that aborts the request, even before its connection is established. It reports the status, if its line has been
   *   received, before it returns. Must not be called after the request has ended: its connection may be carrying another request
   */
  dispatch(
    options: RequestOptions,
    handler: Dispatcher.DispatchHandler,
    connection: ConnectionOptions = {},
  ): () => void {
    const identity = connection.tls ? `${options.origin} ${connection.tls.id}` : options.origin;
    const pool = connection.guard ? `${identity} guarded` : identity;
    const open = () => this.#open(pool, options.origin, connection);
    let kept = this.#takeIdle(pool) ?? open();
    let begun = false;
    const reportReceived = (controller: Dispatcher.DispatchController) => {
      const received = kept.head.take();
      if (received) handler.onResponseStart?.(controller, received.status, received.headers);
      return received !== undefined;
    };
    let started: Dispatcher.DispatchController | undefined;
    const wrapped: Dispatcher.DispatchHandler = {
      onRequestStart: (controller, context) => {
        kept.head.begin();
        started = controller;
        handler.onRequestStart?.(controller, context);
      },
      onResponseStarted: () => {
        begun = true;
      },
      onResponseStart: (controller, status, headers, message) =>
        handler.onResponseStart?.(controller, status, headers, message),
      onResponseData: (controller, chunk) => handler.onResponseData?.(controller, chunk),
      onResponseEnd: (controller, trailers) => {
        // The client accepts the next request only after this callback returns.
        queueMicrotask(() => this.#keep(kept));
        handler.onResponseEnd?.(controller, trailers);
      },
      onResponseError: (controller, error: NodeJS.ErrnoException) => {
        void this.#drop(kept);
        begun ||= kept.head.hasBegun;
        if (
          reportReceived(controller) ||
          begun ||
          !kept.isReused ||
          !CLOSED_CONNECTION_CODES.has(error.code ?? "")
        ) {
          handler.onResponseError?.(controller, error);
          return;
        }
        kept = open();
        kept.client.dispatch(options, wrapped);
      },
    };
    kept.client.dispatch(options, wrapped);
    return () => {
      if (started) reportReceived(started);
      void this.#drop(kept);
    };
  }

  /** The same client for requests whose addresses another guard checks. They share no connections and no TLS sessions with others. */
  guardedBy(guard: AddressGuard): Dispatching {
    return {
      dispatch: (options, handler, connection) => this.dispatch(options, handler, { ...connection, guard }),
    };
  }

  async destroy(): Promise<void> {
    await Promise.all([...this.#all].map((kept) => this.#drop(kept)));
  }

  #open(pool: string, origin: string, connection: ConnectionOptions): Kept {
    connection.onOpen?.();
    const connecting = new AbortController();
    const head = new ResponseHead();
    const client = this.#newClient(origin, connection, connecting.signal, head);
    const state = { since: undefined, isReused: false, isIdle: false };
    const kept: Kept = { pool, client, connecting, head, ...state };
    this.#all.add(kept);
    client
      .on("connect", () => {
        kept.since = performance.now();
        kept.isReused = false;
      })
      .on("disconnect", () => {
        kept.since = undefined;
        if (kept.isIdle) void this.#drop(kept);
      });
    return kept;
  }

  #takeIdle(pool: string): Kept | undefined {
    const idle = this.#idle.get(pool);
    const kept = idle?.pop();
    if (!idle || !kept) return undefined;
    if (idle.length === 0) this.#idle.delete(pool);
    kept.isIdle = false;
    if (!isOld(kept)) return kept;
    // A connection that was used less recently may have been opened later.
    void this.#drop(kept);
    return this.#takeIdle(pool);
  }

  #keep(kept: Kept): void {
    if (kept.client.destroyed || isOld(kept)) {
      void this.#drop(kept);
      return;
    }
    this.#idle.getOrInsertComputed(kept.pool, () => []).push(kept);
    kept.isIdle = true;
    kept.isReused = true;
    this.#all.delete(kept);
    this.#all.add(kept);
    if (this.#all.size <= this.#maxConnections) return;
    for (const each of this.#all) {
      if (each.isIdle) return void this.#drop(each);
    }
  }

  async #drop(kept: Kept): Promise<void> {
    if (!this.#all.delete(kept)) return;
    if (kept.isIdle) {
      const left = (this.#idle.get(kept.pool) ?? []).filter((other) => other !== kept);
      if (left.length > 0) this.#idle.set(kept.pool, left);
      else this.#idle.delete(kept.pool);
    }
    if (kept.since === undefined) kept.connecting.abort();
    await kept.client.destroy();
  }
}

/** Whether the connection must not take another request: it has no socket, or has exceeded MAX_CONNECTION_AGE_MS. */
function isOld({ since }: Kept): boolean {
  return since === undefined || performance.now() - since > MAX_CONNECTION_AGE_MS;
}
