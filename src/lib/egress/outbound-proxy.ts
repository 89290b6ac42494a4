import type { LookupAddress } from "node:dns";
import { once } from "node:events";
import { isIP, isIPv4, type Socket } from "node:net";
import pTimeout from "p-timeout";
import type { Logger } from "pino";
import { dial } from "./dial.ts";
import { describeFault } from "./faults.ts";
import { requestConnect } from "./http-connect.ts";
import type { Resolver } from "./name-resolver.ts";
import type { ProxyAddress } from "./proxy-address.ts";
import { ProxyRefusedError, ProxyUnavailableError } from "./proxy-error.ts";
import { greetSocks5, requestSocks5 } from "./socks5.ts";
import { TlsContext } from "./tls-identity.ts";

/** The timeout of the connection to the proxy itself, including DNS, TLS and SOCKS5 authentication, in milliseconds. */
const REACH_TIMEOUT_MS = 3_000;
/** Connecting to the proxy may take at most the timeout of a request divided by this number. */
const REACH_DIVISOR = 2;
/** The maximum number of a target's addresses to which the proxy is asked to connect. */
const MAX_ADDRESSES = 3;
/** The interval at which `mayStart` lets requests try an unavailable proxy, in milliseconds. */
const TRY_INTERVAL_MS = 1_000;

/**
 * The proxy through which a process opens its HTTPS connections. A target is the server at the other end of such a connection.
 * The proxy gets an address that the address guard has checked, or a host name if it `resolvesNames`.
 *
 * While the proxy is unavailable, requests should wait: `mayStart` then returns true only once a second, for requests that try
 * the proxy again.
 */
export class OutboundProxy {
  /** Whether the proxy gets host names of targets, which are then not looked up here. */
  readonly resolvesNames: boolean;
  readonly #address: ProxyAddress;
  readonly #log: Pick<Logger, "warn" | "info">;
  readonly #resolver: Pick<Resolver, "resolve">;
  readonly #reachTimeoutMs: number;
  readonly #tls: TlsContext | undefined;
  /** The time at which the proxy became unavailable, by `performance.now()`; undefined while it is available. */
  #failedAt: number | undefined;
  #nextTryAt = 0;
  #answeredAt = Number.NEGATIVE_INFINITY;

  /**
   * @param resolver resolves the proxy's name, which may have a private address
   * @param options.timeoutMs the timeout of a request, in milliseconds. Connecting to the proxy gets half of it, at most 3 s
   * @param options.resolvesNames whether the proxy gets host names. Defaults to false: it gets addresses
   */
  constructor(
    address: ProxyAddress,
    resolver: Pick<Resolver, "resolve">,
    options: { timeoutMs: number; resolvesNames?: boolean; log: Pick<Logger, "warn" | "info"> },
  ) {
    const { timeoutMs, resolvesNames = false, log } = options;
    this.resolvesNames = resolvesNames;
    this.#address = address;
    this.#resolver = resolver;
    this.#log = log;
    if (address.protocol === "https") this.#tls = new TlsContext();
    this.#reachTimeoutMs = Math.min(REACH_TIMEOUT_MS, timeoutMs / REACH_DIVISOR);
  }

  /** Whether requests may start. While the proxy is unavailable, true for one call per TRY_INTERVAL_MS. */
  mayStart(): boolean {
    if (this.#failedAt === undefined) return true;
    const now = performance.now();
    if (now < this.#nextTryAt) return false;
    this.#nextTryAt = now + TRY_INTERVAL_MS;
    return true;
  }

  /**
   * Records that the proxy works, because it answered a tunnel request or a target responded through it.
   *
   * @param since the time at which the answered request started, by `performance.now()`. A request that started before the proxy
   *   became unavailable does not count. Defaults to now
   */
  answered(since = performance.now()): void {
    const now = performance.now();
    if (this.#failedAt !== undefined) {
      // The request is older than the failure. Its connection may have outlived the proxy's process or valid credentials.
      if (since < this.#failedAt) return;
      const awayMs = Math.round(now - this.#failedAt);
      this.#failedAt = undefined;
      this.#log.info({ awayMs }, "the outbound proxy is available again");
    }
    this.#answeredAt = now;
  }

  /**
   * Opens a tunnel. If the proxy cannot reach one of the target's addresses, tries the next one: at most 3 (MAX_ADDRESSES), IPv4 first.
   *
   * @param target the target's checked addresses, or its name, and its port
   * @param timeoutMs the timeout of the whole tunnel, in milliseconds
   * @throws ProxyUnavailableError, ProxyRefusedError, or the signal's reason
   */
  async open(
    target: { hosts: readonly string[]; port: number },
    timeoutMs: number,
    cancelled: AbortSignal,
  ): Promise<Socket> {
    const end = performance.now() + timeoutMs;
    // IPv4 first, because more proxies can reach IPv4 than IPv6. The address families of this machine do not matter.
    const hosts = target.hosts.toSorted((a, b) => Number(isIPv4(b)) - Number(isIPv4(a)));
    let refused: unknown;
    for (const host of hosts.slice(0, MAX_ADDRESSES)) {
      try {
        return await this.#openOne(host, target.port, end, cancelled);
      } catch (error) {
        if (!(error instanceof ProxyRefusedError && error.mayTryNext)) throw error;
        refused = error;
      }
    }
    throw refused;
  }

  async #openOne(host: string, port: number, end: number, cancelled: AbortSignal): Promise<Socket> {
    const { credentials, protocol } = this.#address;
    const started = performance.now();
    const ended = new AbortController();
    const limited = <T>(work: Promise<T>, until: number, message: Error) =>
      pTimeout(work, { milliseconds: Math.max(1, until - performance.now()), message, signal: cancelled });
    let reached: Socket | undefined;
    try {
      const reachBy = started + this.#reachTimeoutMs;
      // If the target's earlier addresses left less time than connecting to the proxy may take, a timeout does not blame the proxy.
      const tooLate =
        end < reachBy
          ? receiverTooLate()
          : new ProxyUnavailableError(`no connection within ${this.#reachTimeoutMs / 1_000} s`);
      reached = await limited(this.#reach(ended.signal), Math.min(end, reachBy), tooLate);
      const request =
        protocol === "socks5"
          ? requestSocks5(reached, host, port)
          : requestConnect(reached, host, port, credentials);
      await limited(request, end, receiverTooLate());
      this.answered();
      return reached;
    } catch (raised) {
      ended.abort();
      if (cancelled.aborted) throw raised;
      const error = this.#explained(raised as NodeJS.ErrnoException, started, reached !== undefined);
      if (error instanceof ProxyRefusedError) this.answered(started);
      else this.#failed(error);
      throw error;
    }
  }

  /**
   * Connects to the proxy. With SOCKS5, also authenticates; an HTTP proxy gets the credentials with the CONNECT request.
   *
   * @param ended closes the connection when it aborts
   */
  async #reach(ended: AbortSignal): Promise<Socket> {
    const { credentials, host, port, protocol } = this.#address;
    const addresses = await this.#resolve();
    ended.throwIfAborted();
    const connection = await dial(addresses, port, { milliseconds: Number.POSITIVE_INFINITY, signal: ended });
    const socket = this.#tls?.connect(host, connection) ?? connection;
    ended.addEventListener("abort", () => socket.destroy());
    socket.setNoDelay(true);
    if (this.#tls) await once(socket, "secureConnect");
    if (protocol === "socks5") await greetSocks5(socket, credentials);
    return socket;
  }

  async #resolve(): Promise<readonly LookupAddress[]> {
    const { host } = this.#address;
    const family = isIP(host);
    if (family !== 0) return [{ address: host, family }];
    try {
      return await this.#resolver.resolve(host);
    } catch {
      // The resolver's error contains the proxy's name. Messages about the proxy must not reveal its address.
      throw new ProxyUnavailableError("the DNS lookup of its name failed");
    }
  }

  #explained(
    error: NodeJS.ErrnoException,
    started: number,
    isReached: boolean,
  ): ProxyRefusedError | ProxyUnavailableError {
    if (error instanceof ProxyRefusedError) return error;
    const unavailable =
      error instanceof ProxyUnavailableError
        ? error
        : new ProxyUnavailableError(
            isReached ? `it closed the connection (${error.code})` : describeFault(error),
          );
    // The proxy answered another request meanwhile, so the cause is this target, not the proxy.
    return isReached && this.#answeredAt > started ? new ProxyRefusedError(unavailable.reason) : unavailable;
  }

  #failed({ reason }: ProxyUnavailableError): void {
    if (this.#failedAt !== undefined) return;
    this.#failedAt = performance.now();
    this.#nextTryAt = this.#failedAt + TRY_INTERVAL_MS;
    this.#log.warn({ reason }, "the outbound proxy is unavailable; deliveries wait");
  }
}

/** The error of a tunnel that was not open in time. Blames the target: the proxy usually waits for a target that does not answer. */
function receiverTooLate(): ProxyRefusedError {
  return new ProxyRefusedError("it did not reach the receiver in time", "host timeout");
}
