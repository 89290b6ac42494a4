import type { LookupAddress } from "node:dns";
import { connect as connectTcp, isIP, isIPv4, type LookupFunction, type Socket } from "node:net";
import { connect as connectTls, createSecureContext, type SecureContext } from "node:tls";
import type { Logger } from "pino";
import type { ProxyAddress } from "../../config/values.ts";
import { withoutMissingFamily } from "../http/families.ts";
import { NameResolver, type Resolver } from "../http/name-resolver.ts";
import { describeFault } from "../request/outcome.ts";
import { requestConnect } from "./http-connect.ts";
import { ProxyRefusedError, ProxyUnavailableError } from "./proxy-error.ts";
import { ProxyState } from "./proxy-state.ts";
import { greetSocks5, requestSocks5 } from "./socks5.ts";

/** The timeout of the connection to the proxy itself, in milliseconds. */
const REACH_TIMEOUT_MS = 3_000;
/** The part of an attempt's timeout that connecting to the proxy may take at most: one half. */
const REACH_DIVISOR = 2;
/** The maximum number of a receiver's addresses that the proxy is asked for. */
const MAX_ADDRESSES = 3;

/** A receiver's checked addresses and port. */
export interface TunnelTarget {
  addresses: readonly string[];
  port: number;
}

/**
 * Creates the outbound proxy of an HTTP client, with its state.
 *
 * @param options.timeoutMs the timeout of an attempt, in milliseconds
 */
export function createOutboundProxy(
  address: ProxyAddress,
  { timeoutMs, log }: { timeoutMs: number; log: Pick<Logger, "warn" | "info"> },
): { proxy: OutboundProxy; state: ProxyState; close(): void } {
  const resolver = new NameResolver();
  const state = new ProxyState(log);
  const proxy = new OutboundProxy(address, { resolver, state, attemptTimeoutMs: timeoutMs });
  return { proxy, state, close: () => resolver.close() };
}

/**
 * The proxy through which a process opens its connections to receivers and token endpoints. The proxy gets an address
 * that the address guard has checked, never a name.
 */
export class OutboundProxy {
  readonly #address: ProxyAddress;
  readonly #resolver: Resolver;
  readonly #state: ProxyState;
  readonly #reachTimeoutMs: number;
  readonly #secureContext: SecureContext | undefined;

  /**
   * @param parts.resolver resolves the proxy's name, which may have a private address
   * @param parts.attemptTimeoutMs the timeout of an attempt, in milliseconds
   */
  constructor(
    address: ProxyAddress,
    parts: { resolver: Resolver; state: ProxyState; attemptTimeoutMs: number },
  ) {
    this.#address = address;
    this.#resolver = parts.resolver;
    this.#state = parts.state;
    this.#reachTimeoutMs = Math.min(REACH_TIMEOUT_MS, parts.attemptTimeoutMs / REACH_DIVISOR);
    // Shared: otherwise each connection reads the certificates of the authorities again.
    if (address.protocol === "https") this.#secureContext = createSecureContext();
  }

  /**
   * Opens a tunnel. Tries the target's next address if the proxy cannot reach one.
   *
   * @param timeoutMs the timeout of the whole tunnel, in milliseconds
   * @throws ProxyUnavailableError, ProxyRefusedError
   */
  async open(target: TunnelTarget, timeoutMs: number, cancelled: AbortSignal): Promise<Socket> {
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
    const started = performance.now();
    try {
      const socket = await this.#reach(end - started, cancelled);
      try {
        await this.#request(socket, address, port, { started, end, cancelled });
      } catch (error) {
        socket.destroy();
        throw error;
      }
      this.#state.answered();
      return socket;
    } catch (error) {
      if (error instanceof ProxyRefusedError) this.#state.answered(started);
      else if (error instanceof ProxyUnavailableError && !cancelled.aborted) this.#state.failed(error);
      throw error;
    }
  }

  /**
   * Connects to the proxy, and authenticates if that comes before naming the receiver.
   *
   * @param leftMs the time left for the tunnel, in milliseconds
   */
  async #reach(leftMs: number, cancelled: AbortSignal): Promise<Socket> {
    const { credentials, protocol } = this.#address;
    let socket: Socket | undefined;
    const timeoutMs = Math.max(0, Math.min(this.#reachTimeoutMs, leftMs));
    // The receiver's earlier addresses may have used up the time: that says nothing about the proxy.
    const expired =
      leftMs < this.#reachTimeoutMs
        ? tooLate()
        : new ProxyUnavailableError(`no connection within ${timeoutMs / 1_000} s`);
    const { promise: stopped, reject: stop } = Promise.withResolvers<never>();
    let isOver = false;
    const give = (error: Error) => () => {
      isOver = true;
      stop(error);
      socket?.destroy(error);
    };
    const timer = setTimeout(give(expired), timeoutMs);
    const onCancelled = give(new ProxyUnavailableError("cancelled"));
    cancelled.addEventListener("abort", onCancelled);
    const reached = async () => {
      const addresses = await this.#resolve();
      if (isOver) throw expired;
      socket = await this.#dial(addresses, (dialled) => {
        socket = dialled;
      });
      if (protocol === "socks5") await greetSocks5(socket, credentials);
      return socket;
    };
    try {
      return await Promise.race([reached(), stopped]);
    } catch (error) {
      socket?.destroy();
      if (error instanceof ProxyUnavailableError || error === expired) throw error;
      throw new ProxyUnavailableError(describeFault(error as Error));
    } finally {
      clearTimeout(timer);
      cancelled.removeEventListener("abort", onCancelled);
    }
  }

  async #resolve(): Promise<readonly LookupAddress[]> {
    const { host } = this.#address;
    const family = isIP(host);
    if (family !== 0) return [{ address: host, family }];
    try {
      return withoutMissingFamily(await this.#resolver.resolve(host));
    } catch {
      // The resolver's error holds the name, which users of the settings page need not know.
      throw new ProxyUnavailableError("the DNS lookup of its name failed");
    }
  }

  /** @param dialled given the socket before it is connected */
  #dial(addresses: readonly LookupAddress[], dialled: (socket: Socket) => void): Promise<Socket> {
    const { host, port, protocol } = this.#address;
    const lookup: LookupFunction = (_name, options, callback) => {
      const [first] = addresses;
      if (options.all) callback(null, [...addresses]);
      else callback(null, first?.address ?? "", first?.family);
    };
    const options = { host, port, lookup, autoSelectFamily: true };
    const socket =
      protocol === "https"
        ? connectTls({
            ...options,
            ...(isIP(host) === 0 ? { servername: host } : {}),
            ...(this.#secureContext ? { secureContext: this.#secureContext } : {}),
            rejectUnauthorized: true,
            ALPNProtocols: ["http/1.1"],
          })
        : connectTcp(options);
    socket.setNoDelay(true);
    dialled(socket);
    const { promise, resolve, reject } = Promise.withResolvers<Socket>();
    socket.once(protocol === "https" ? "secureConnect" : "connect", () => resolve(socket));
    // Stays: a socket that nobody listens to would end the process with its error.
    socket.on("error", reject);
    return promise;
  }

  /** Requests the tunnel over a connection to the proxy. */
  async #request(
    socket: Socket,
    address: string,
    port: number,
    { started, end, cancelled }: { started: number; end: number; cancelled: AbortSignal },
  ): Promise<void> {
    const expired = tooLate();
    const timer = setTimeout(() => socket.destroy(expired), Math.max(0, end - performance.now()));
    const onCancelled = () => socket.destroy(new ProxyUnavailableError("cancelled"));
    cancelled.addEventListener("abort", onCancelled);
    try {
      const { credentials, protocol } = this.#address;
      if (protocol === "socks5") await requestSocks5(socket, address, port);
      else await requestConnect(socket, address, port, credentials);
    } catch (error) {
      if (error instanceof ProxyRefusedError) throw error;
      const reason =
        error instanceof ProxyUnavailableError
          ? error
          : new ProxyUnavailableError(`it closed the connection (${(error as NodeJS.ErrnoException).code})`);
      // Other receivers are answered: the reason is this one.
      if (this.#state.hasAnsweredSince(started)) throw new ProxyRefusedError(reason.reason);
      throw reason;
    } finally {
      clearTimeout(timer);
      cancelled.removeEventListener("abort", onCancelled);
    }
  }
}

/** The proxy connects to the receiver after the request: a receiver that does not answer is the usual reason. */
function tooLate(): ProxyRefusedError {
  return new ProxyRefusedError("it did not reach the receiver in time", "host timeout");
}
