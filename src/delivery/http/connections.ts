import { type buildConnector, Client, type Dispatcher } from "undici";

/** A connection this old takes no further request, in milliseconds: receivers move by DNS. */
const MAX_AGE_MS = 300_000;
/** What ends a request on a connection that the receiver closed at the same moment. */
const CLOSED = new Set(["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"]);

/** One connection, with the client that holds it. */
interface Kept {
  readonly origin: string;
  readonly client: Client;
  /** Ends the connecting. */
  cancel: () => void;
  /** When its socket was connected; undefined while it has none. */
  since: number | undefined;
  /** Responses since then. */
  responses: number;
}

/** A request, and who is told of it. */
export interface Exchange {
  options: Dispatcher.DispatchOptions & { origin: string };
  handler: Dispatcher.DispatchHandler;
  /** Told when the request is sent once more. */
  onAgain?: () => void;
}

/** Connects, and answers what ends that early. */
export type Connect = (
  options: buildConnector.Options,
  callback: buildConnector.Callback,
) => (() => void) | undefined;

/**
 * The connections of a process. A request goes over the connection of its host that was used last, or over a new one.
 * When a reused connection is closed before a byte of the response came, the request is sent once more over a new one:
 * the receiver had closed it at that moment.
 */
export class Connections {
  readonly #options: Omit<Client.Options, "connect">;
  readonly #connect: Connect;
  readonly #maxConnections: number;
  readonly #now: () => number;
  readonly #idle = new Map<string, Kept[]>();
  /** In the order in which they became idle. */
  readonly #byAge = new Set<Kept>();
  readonly #all = new Set<Kept>();

  /**
   * @param options of each connection's client
   * @param options.maxConnections idle ones are kept while there are no more than so many, those in use included; the one
   *   that has been idle for longest makes room
   * @param options.now monotonic time in milliseconds; the system's unless given
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

  /** Open connections, those in use included, and hosts that have idle ones. */
  get size(): { connections: number; idleHosts: number } {
    let connections = 0;
    for (const { since } of this.#all) if (since !== undefined) connections += 1;
    return { connections, idleHosts: this.#idle.size };
  }

  /** Sends a request. @returns gives it up, also while it waits for its connection */
  dispatch(exchange: Exchange): () => void {
    const kept = this.#takeIdle(exchange.options.origin) ?? this.#open(exchange.options.origin);
    let current = this.#send(kept, exchange, (error) => {
      if (kept.responses === 0 || !CLOSED.has((error as NodeJS.ErrnoException).code ?? "")) return false;
      exchange.onAgain?.();
      current = this.#send(this.#open(exchange.options.origin), exchange, () => false);
      return true;
    });
    return () => current();
  }

  async destroy(): Promise<void> {
    await Promise.all([...this.#all].map((kept) => this.#drop(kept)));
  }

  /** @param again told of an error before the response began; true when it has sent the request once more */
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
        // The client takes a further request once it has left this call.
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

  #open(origin: string): Kept {
    const client = new Client(origin, {
      ...this.#options,
      connect: (options, callback) => {
        kept.cancel = this.#connect(options, callback) ?? kept.cancel;
      },
    });
    const kept: Kept = { origin, client, cancel: () => {}, since: undefined, responses: 0 };
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

  #takeIdle(origin: string): Kept | undefined {
    const idle = this.#idle.get(origin);
    const kept = idle?.pop();
    if (!idle || !kept) return undefined;
    if (idle.length === 0) this.#idle.delete(origin);
    this.#byAge.delete(kept);
    if (!this.#isOld(kept)) return kept;
    // Those that were used before it may be younger.
    void this.#drop(kept);
    return this.#takeIdle(origin);
  }

  /** Whether it takes no further request: it has no socket any more, or has had it for too long. */
  #isOld({ since }: Kept): boolean {
    return since === undefined || this.#now() - since > MAX_AGE_MS;
  }

  #keep(kept: Kept): void {
    const { origin, client } = kept;
    if (client.closed || client.destroyed || this.#isOld(kept)) {
      void this.#drop(kept);
      return;
    }
    const idle = this.#idle.get(origin);
    if (idle) idle.push(kept);
    else this.#idle.set(origin, [kept]);
    this.#byAge.add(kept);
    const [oldest] = this.#byAge;
    if (this.#all.size > this.#maxConnections && oldest) void this.#drop(oldest);
  }

  async #drop(kept: Kept): Promise<void> {
    if (!this.#all.delete(kept)) return;
    if (this.#byAge.delete(kept)) {
      const left = (this.#idle.get(kept.origin) ?? []).filter((other) => other !== kept);
      if (left.length > 0) this.#idle.set(kept.origin, left);
      else this.#idle.delete(kept.origin);
    }
    if (kept.since === undefined) kept.cancel();
    await kept.client.destroy();
  }
}
