import { type buildConnector, Client, type Dispatcher } from "undici";
import type { TlsIdentity } from "./tls-identity.ts";

/** The maximum age of a connection that takes another request, in milliseconds. Receivers change their DNS records. */
const MAX_CONNECTION_AGE_MS = 300_000;
/** Error codes of a request on a connection that the receiver closed at the same moment. */
const CLOSED_CONNECTION_CODES = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);

/** A connection and its client. */
interface Kept {
  /** The name of its origin and TLS identity: it takes requests of these only. */
  readonly pool: string;
  readonly client: Client;
  /** Aborts connecting. */
  cancel: () => void;
  /** The time at which the socket connected; undefined without a socket. */
  since: number | undefined;
  /** The number of responses since the socket connected. */
  responses: number;
}

/** A request and its callbacks. */
export interface Exchange {
  options: Dispatcher.DispatchOptions & { origin: string };
  handler: Dispatcher.DispatchHandler;
  /** The webhook's own certificates. Undefined for the public authorities without a client certificate. */
  tls?: TlsIdentity | undefined;
  /** Called when a connection is opened for the request. */
  onOpen?: () => void;
  /** Called when the request is sent a second time. */
  onAgain?: () => void;
}

/** Starts connecting. Returns a function that aborts it. */
export type Connect = (
  options: buildConnector.Options,
  callback: buildConnector.Callback,
  tls: TlsIdentity | undefined,
) => (() => void) | undefined;

/**
 * The connection pool of a process. A request uses the most recently used idle connection to its host with its TLS
 * identity, or a new one.
 * If a reused connection closes before the first byte of the response, the request is sent once more over a new
 * connection: the receiver closed the idle connection at that moment.
 */
export class Connections {
  readonly #options: Omit<Client.Options, "connect">;
  readonly #connect: Connect;
  readonly #maxConnections: number;
  readonly #now: () => number;
  readonly #idle = new Map<string, Kept[]>();
  /** Idle connections, longest idle first. */
  readonly #byAge = new Set<Kept>();
  readonly #all = new Set<Kept>();

  /**
   * @param options options of each connection's client
   * @param options.maxConnections the limit of connections, idle and in use, above which the longest idle connection
   *   is closed
   * @param options.now monotonic time in milliseconds. Defaults to the system's
   */
  constructor({
    connect,
    maxConnections,
    now = () => performance.now(),
    ...options
  }: Omit<Client.Options, "connect"> & { connect: Connect; maxConnections: number; now?: () => number }) {
    this.#options = options;
    this.#maxConnections = maxConnections;
    this.#connect = connect;
    this.#now = now;
  }

  /** Open connections, including those in use, and the number of hosts with idle connections. */
  get size(): { connections: number; idleHosts: number } {
    let connections = 0;
    for (const { since } of this.#all) if (since !== undefined) connections += 1;
    return { connections, idleHosts: this.#idle.size };
  }

  /** Sends a request. @returns aborts the request, also while it waits for its connection */
  dispatch(exchange: Exchange): () => void {
    const kept = this.#takeIdle(poolOf(exchange)) ?? this.#open(exchange);
    let current = this.#send(kept, exchange, (error) => {
      if (kept.responses === 0 || !CLOSED_CONNECTION_CODES.has((error as NodeJS.ErrnoException).code ?? ""))
        return false;
      exchange.onAgain?.();
      current = this.#send(this.#open(exchange), exchange, () => false);
      return true;
    });
    return () => current();
  }

  async destroy(): Promise<void> {
    await Promise.all([...this.#all].map((kept) => this.#drop(kept)));
  }

  /** @param again called with an error before the response started; returns true if it resent the request */
  #send(kept: Kept, { options, handler }: Exchange, again: (error: Error) => boolean): () => void {
    const { client } = kept;
    let begun = false;
    client.dispatch(options, {
      onRequestStart: (controller, context) => handler.onRequestStart?.(controller, context),
      onResponseStarted: () => {
        begun = true;
      },
      onResponseStart: (controller, status, headers, message) =>
        handler.onResponseStart?.(controller, status, headers, message),
      onResponseData: (controller, chunk) => handler.onResponseData?.(controller, chunk),
      onResponseEnd: (controller, trailers) => {
        kept.responses += 1;
        // The client accepts the next request only after this callback returns.
        queueMicrotask(() => this.#keep(kept));
        handler.onResponseEnd?.(controller, trailers);
      },
      onResponseError: (controller, error) => {
        void this.#drop(kept);
        if (begun || !again(error)) handler.onResponseError?.(controller, error);
      },
    });
    return () => void this.#drop(kept);
  }

  #open(exchange: Exchange): Kept {
    const { tls } = exchange;
    exchange.onOpen?.();
    const client = new Client(exchange.options.origin, {
      ...this.#options,
      connect: (options, callback) => {
        kept.cancel = this.#connect(options, callback, tls) ?? kept.cancel;
      },
    });
    const kept: Kept = { pool: poolOf(exchange), client, cancel: () => {}, since: undefined, responses: 0 };
    this.#all.add(kept);
    kept.client
      .on("connect", () => {
        kept.since = this.#now();
        kept.responses = 0;
      })
      .on("disconnect", () => {
        kept.since = undefined;
        if (this.#byAge.has(kept)) void this.#drop(kept);
      });
    return kept;
  }

  #takeIdle(pool: string): Kept | undefined {
    const idle = this.#idle.get(pool);
    const kept = idle?.pop();
    if (!idle || !kept) return undefined;
    if (idle.length === 0) this.#idle.delete(pool);
    this.#byAge.delete(kept);
    if (!this.#isOld(kept)) return kept;
    // Connections used earlier may be younger.
    void this.#drop(kept);
    return this.#takeIdle(pool);
  }

  /** Whether the connection must not take another request: it has no socket, or has exceeded MAX_CONNECTION_AGE_MS. */
  #isOld({ since }: Kept): boolean {
    return since === undefined || this.#now() - since > MAX_CONNECTION_AGE_MS;
  }

  #keep(kept: Kept): void {
    const { pool, client } = kept;
    if (client.closed || client.destroyed || this.#isOld(kept)) {
      void this.#drop(kept);
      return;
    }
    const idle = this.#idle.get(pool);
    if (idle) idle.push(kept);
    else this.#idle.set(pool, [kept]);
    this.#byAge.add(kept);
    const [oldest] = this.#byAge;
    if (this.#all.size > this.#maxConnections && oldest) void this.#drop(oldest);
  }

  async #drop(kept: Kept): Promise<void> {
    if (!this.#all.delete(kept)) return;
    if (this.#byAge.delete(kept)) {
      const left = (this.#idle.get(kept.pool) ?? []).filter((other) => other !== kept);
      if (left.length > 0) this.#idle.set(kept.pool, left);
      else this.#idle.delete(kept.pool);
    }
    if (kept.since === undefined) kept.cancel();
    await kept.client.destroy();
  }
}

/** The name of the connections that a request can use. An origin holds no space. */
function poolOf({ options: { origin }, tls }: Exchange): string {
  return tls ? `${origin} ${tls.id}` : origin;
}
