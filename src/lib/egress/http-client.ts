import type { LookupAddress } from "node:dns";
import { once } from "node:events";
import { isIP, type Socket } from "node:net";
import { LRUCache } from "lru-cache";
import pTimeout from "p-timeout";
import { type buildConnector, Client, errors } from "undici";
import { systemClock } from "../process/index.ts";
import { type AddressGuard, bareHost, HTTPS_PORT } from "./address-guard.ts";
import { traceHandshake } from "./connection-trace.ts";
import { type ConnectionOptions, Connections } from "./connections.ts";
import { dial, withoutMissingFamily } from "./dial.ts";
import type { OutboundProxy } from "./outbound-proxy.ts";
import { Pacer } from "./pacer.ts";
import { MAX_HEAD_BYTES } from "./response-head.ts";
import { createTlsSessions, TlsContext, type TlsIdentity } from "./tls-identity.ts";

/**
 * The timeout for opening a connection including the outbound proxy and TLS, in milliseconds. It starts after the wait for a
 * handshake slot and the DNS lookup.
 */
const CONNECT_TIMEOUT_MS = 5_000;
/**
 * The keep-alive timeout of idle connections, in milliseconds. Shorter than the five seconds after which many servers
 * close idle connections, because a request that is sent while the server closes the connection fails.
 */
const KEEP_ALIVE_MS = 4_000;
/** The maximum size of a response body, in bytes. A larger body fails the request and closes the connection. */
export const MAX_RESPONSE_BYTES = 64 * 1024;
/** Limits of TLS handshakes: the burst and the rate per second. Each handshake occupies the thread for 1 ms. */
export const HANDSHAKES = { atOnce: 100, perSecond: 400 };
/** The maximum number of TLS identities whose contexts are cached, and the size of their certificates, in characters of PEM. */
const MAX_CACHED_IDENTITIES = 500;
const MAX_CACHED_PEM = 8 * 1_024 * 1_024;

/**
 * Creates the HTTP client of a process, with keep-alive. HTTP/1.1 only, because HTTP/2 sends header names in lower case. The
 * guard checks every address and port, unless a request has its own (`guardedBy`). Environment variables such as HTTPS_PROXY are ignored.
 *
 * @param maxConnections the number of connections, idle and in use, above which idle ones are closed. Does not limit the
 *   connections in use
 * @param proxy opens the connections to the checked addresses, or to names that it resolves. Undefined to connect directly
 * @param handshakes paces new connections. Defaults to HANDSHAKES
 * @param onCertificate told the end of the server's certificate at each handshake, and whether the request had another guard. Defaults to
 *   nothing
 */
export function createHttpClient(
  ownGuard: AddressGuard,
  maxConnections: number,
  proxy?: OutboundProxy,
  handshakes = new Pacer(HANDSHAKES, systemClock),
  onCertificate?: (host: string, notAfter: Date, isGuarded: boolean) => void,
): Connections {
  const own = createTlsContexts();
  const guarded = createTlsContexts();

  async function connect(
    { hostname, port: given }: buildConnector.Options,
    { tls, guard = ownGuard, trace }: ConnectionOptions,
    signal: AbortSignal,
  ): Promise<Socket> {
    const host = bareHost(hostname);
    const port = Number(given || HTTPS_PORT);
    const family = isIP(host);
    guard.checkPort(port);
    if (family !== 0) guard.check(host);
    else if (proxy?.resolvesNames) guard.checkUnresolved(host);
    const context = (guard === ownGuard ? own : guarded).memo(tls?.id ?? "", { context: tls });
    const { promise: started, resolve: start } = Promise.withResolvers<void>();
    // The slot is requested before the DNS lookup, so that `backlogMs` of the pacer counts this connection at once.
    const free = handshakes.take(start);
    // The signal also aborts after a failed lookup. No handshake follows, so the slot is given back.
    signal.addEventListener("abort", free);
    await started;
    if (trace) trace.opened = performance.now();
    const isLookedUp = family === 0 && !proxy?.resolvesNames;
    const addresses = isLookedUp ? await guard.resolve(host) : [{ address: host, family }];
    signal.throwIfAborted();
    signal.removeEventListener("abort", free);
    if (trace) trace.lookedUp = performance.now();
    if (trace && isLookedUp) trace.addresses = addresses.map(({ address }) => address);

    const end = performance.now() + CONNECT_TIMEOUT_MS;
    const limits = () => ({
      milliseconds: Math.max(1, end - performance.now()),
      message: new errors.ConnectTimeoutError(),
      signal,
    });
    // An outbound proxy gets all addresses: it may have an address family that this machine lacks.
    const target = { hosts: addresses.map(({ address }) => address), port };
    const tunnel = await proxy?.open(target, CONNECT_TIMEOUT_MS, signal);
    const [{ address }, ...others] = withoutMissingFamily(addresses) as [LookupAddress, ...LookupAddress[]];
    // Without `dial` if there is nothing to choose from: its separate socket takes the thread a tenth more time per connection.
    const direct = others.length === 0 ? { address, port } : undefined;
    const to = tunnel ?? direct ?? (await dial(addresses, port, limits()));
    if (trace && to !== direct) trace.connected = performance.now();
    const socket = context.connect(host, to);
    if (trace) traceHandshake(trace, socket);
    try {
      await pTimeout(once(socket, "secureConnect"), limits());
      const notAfter = onCertificate && socket.getPeerX509Certificate()?.validToDate;
      const named = port === HTTPS_PORT ? hostname : `${hostname}:${port}`;
      if (notAfter) onCertificate(named, notAfter, guard !== ownGuard);
      return socket;
    } catch (error) {
      socket.destroy();
      throw error;
    }
  }

  return new Connections(
    maxConnections,
    (origin, connection, signal, head) =>
      new Client(origin, {
        pipelining: 1,
        allowH2: false,
        keepAliveTimeout: KEEP_ALIVE_MS,
        // A server's Keep-Alive hint may shorten the timeout, never extend it.
        keepAliveMaxTimeout: KEEP_ALIVE_MS,
        // The caller has one timer for headers and body together.
        headersTimeout: 0,
        bodyTimeout: 0,
        maxHeaderSize: MAX_HEAD_BYTES,
        maxResponseSize: MAX_RESPONSE_BYTES,
        connect: (options, callback) =>
          void connect(options, connection, signal).then(
            (socket) => {
              head.attach(socket);
              callback(null, socket);
            },
            (error: Error) => callback(error, null),
          ),
      }),
  );
}

/** Creates a cache of the contexts of TLS identities, which share a cache of sessions. */
function createTlsContexts() {
  const sessions = createTlsSessions();
  return new LRUCache<string, TlsContext, TlsIdentity | undefined>({
    max: MAX_CACHED_IDENTITIES,
    maxSize: MAX_CACHED_PEM,
    sizeCalculation: ({ size }) => size,
    memoMethod: (_id, _stale, { context: tls }) => new TlsContext(tls, sessions),
  });
}
