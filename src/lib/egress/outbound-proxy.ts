import type { LookupAddress } from "node:dns";
import { once } from "node:events";
import { connect as connectTcp, isIP, isIPv4, type Socket } from "node:net";
import pTimeout from "p-timeout";
import type { Logger } from "pino";
import { dialling } from "./families.ts";
import { describeFault } from "./faults.ts";
import { requestConnect } from "./http-connect.ts";
import type { Resolver } from "./name-resolver.ts";
import type { ProxyAddress } from "./proxy-address.ts";
import { ProxyRefusedError, ProxyUnavailableError } from "./proxy-error.ts";
import { greetSocks5, requestSocks5 } from "./socks5.ts";
import { TlsContext } from "./tls-identity.ts";

/** The timeout of the connection to the proxy itself, in milliseconds. */
const REACH_TIMEOUT_MS = 3_000;
/** The part of an attempt's timeout that connecting to the proxy may take at most: one half. */
const REACH_DIVISOR = 2;
/** The maximum number of a receiver's addresses that the proxy is asked for. */
const MAX_ADDRESSES = 3;
/** The interval between requests that try an unavailable proxy, in milliseconds. */
const TRY_INTERVAL_MS = 1_000;

/**
 * The proxy through which a process opens its connections to receivers and token endpoints. The proxy gets an address
 * that the address guard has checked, never a name.
 *
 * While the proxy is unavailable, deliveries wait as they do while the database is away; one a second starts, to find out.
 */
export class OutboundProxy {
  readonly #address: ProxyAddress;
  readonly #log: Pick<Logger, "warn" | "info">;
  readonly #resolver: Pick<Resolver, "resolve">;
  readonly #reachTimeoutMs: number;
  readonly #tls: TlsContext | undefined;
  /** The time at which the proxy became unavailable; undefined while it is available. */
  #failedAt: number | undefined;
  #nextTryAt = 0;
  #answeredAt = Number.NEGATIVE_INFINITY;

  /**
   * @param resolver resolves the proxy's name, which may have a private address
   * @param options.timeoutMs the timeout of an attempt, in milliseconds
   */
  constructor(
    address: ProxyAddress,
    resolver: Pick<Resolver, "resolve">,
    { timeoutMs, log }: { timeoutMs: number; log: Pick<Logger, "warn" | "info"> },
  ) {
    this.#address = address;
    this.#resolver = resolver;
    this.#log = log;
    if (address.protocol === "https") this.#tls = new TlsContext();
    this.#reachTimeoutMs = Math.min(REACH_TIMEOUT_MS, timeoutMs / REACH_DIVISOR);
  }

  /** Whether a request may start. Called once for each request. */
  mayStart(): boolean {
    if (this.#failedAt === undefined) return true;
    const now = performance.now();
    if (now < this.#nextTryAt) return false;
    this.#nextTryAt = now + TRY_INTERVAL_MS;
    return true;
  }

  /** The proxy answered about a receiver, or a receiver over the proxy. @param since the start of what was answered */
  answered(since = performance.now()): void {
    const now = performance.now();
    if (this.#failedAt !== undefined) {
      // An older connection may have outlived the proxy's credentials or process.
      if (since < this.#failedAt) return;
      const awayMs = Math.round(now - this.#failedAt);
      this.#failedAt = undefined;
      this.#log.info({ awayMs }, "the outbound proxy is available again");
    }
    this.#answeredAt = now;
  }

  /**
   * Opens a tunnel. Tries the target's next address if the proxy cannot reach one.
   *
   * @param target the receiver's checked addresses and port
   * @param timeoutMs the timeout of the whole tunnel, in milliseconds
   * @throws ProxyUnavailableError, ProxyRefusedError, or the signal's reason
   */
  async open(
    target: { addresses: readonly string[]; port: number },
    timeoutMs: number,
    cancelled: AbortSignal,
  ): Promise<Socket> {
    const end = performance.now() + timeoutMs;
    // The proxy's egress addresses are IPv4 more often than IPv6; this machine's own families do not matter.
    const addresses = target.addresses.toSorted((a, b) => Number(isIPv4(b)) - Number(isIPv4(a)));
    let refused: unknown;
    for (const address of addresses.slice(0, MAX_ADDRESSES)) {
      try {
        return await this.#openOne(address, target.port, end, cancelled);
      } catch (error) {
        if (!(error instanceof ProxyRefusedError && error.mayTryNext)) throw error;
        refused = error;
      }
    }
    throw refused;
  }

  async #openOne(address: string, port: number, end: number, cancelled: AbortSignal): Promise<Socket> {
    const { credentials, protocol } = this.#address;
    const started = performance.now();
    const ended = new AbortController();
    const limited = <T>(work: Promise<T>, until: number, message: Error) =>
      pTimeout(work, { milliseconds: Math.max(1, until - performance.now()), message, signal: cancelled });
    let reached: Socket | undefined;
    try {
      const reachBy = started + this.#reachTimeoutMs;
      // The receiver's earlier addresses may have used up the time: that says nothing about the proxy.
      const tooLate =
        end < reachBy
          ? receiverTooLate()
          : new ProxyUnavailableError(`no connection within ${this.#reachTimeoutMs / 1_000} s`);
      reached = await limited(this.#reach(ended.signal), Math.min(end, reachBy), tooLate);
      const request =
        protocol === "socks5"
          ? requestSocks5(reached, address, port)
          : requestConnect(reached, address, port, credentials);
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
   * Connects to the proxy, and authenticates if that comes before naming the receiver.
   *
   * @param ended closes the connection
   */
  async #reach(ended: AbortSignal): Promise<Socket> {
    const { credentials, host, port, protocol } = this.#address;
    const addresses = await this.#resolve();
    ended.throwIfAborted();
    const socket =
      this.#tls?.connect(host, port, addresses) ?? connectTcp({ host, port, ...dialling(addresses) });
    ended.addEventListener("abort", () => socket.destroy());
    // A socket that nobody listens to would end the process with its error.
    socket.on("error", () => {});
    socket.setNoDelay(true);
    await once(socket, this.#tls ? "secureConnect" : "connect");
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
      // The resolver's error holds the name, which users of the settings page need not know.
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
    // Other receivers are answered: the reason is this one.
    return isReached && this.#answeredAt > started ? new ProxyRefusedError(unavailable.reason) : unavailable;
  }

  #failed({ reason }: ProxyUnavailableError): void {
    if (this.#failedAt !== undefined) return;
    this.#failedAt = performance.now();
    this.#nextTryAt = this.#failedAt + TRY_INTERVAL_MS;
    this.#log.warn({ reason }, "the outbound proxy is unavailable; deliveries wait");
  }
}

/** The proxy connects to the receiver after the request: a receiver that does not answer is the usual reason. */
function receiverTooLate(): ProxyRefusedError {
  return new ProxyRefusedError("it did not reach the receiver in time", "host timeout");
}
