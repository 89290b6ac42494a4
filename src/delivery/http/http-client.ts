import type { LookupAddress } from "node:dns";
import { isIP, type LookupFunction, type Socket } from "node:net";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import { buildConnector, errors } from "undici";
import { systemClock } from "../../process/clock.ts";
import type { OutboundProxy, TunnelTarget } from "../proxy/outbound-proxy.ts";
import type { AddressGuard } from "../request/address-guard.ts";
import { bareHost, HTTPS_PORT } from "../request/target-url.ts";
import { Connections } from "./connections.ts";
import { withoutMissingFamily } from "./families.ts";
import { Pacer } from "./pacer.ts";
import { IdentityCache, type TlsIdentity } from "./tls-identity.ts";

/**
 * The timeout of a connection including the outbound proxy and TLS, in milliseconds. It starts after the wait for a
 * handshake slot and the DNS lookup.
 */
const CONNECT_TIMEOUT_MS = 5_000;
/**
 * The keep-alive timeout of idle connections, in milliseconds. Shorter than the five seconds after which many servers
 * close idle connections, because a request that crosses such a close fails.
 */
const KEEP_ALIVE_MS = 4_000;
/** Limits of TLS handshakes: the burst and the rate per second. Each handshake occupies the thread for 1 ms. */
export const HANDSHAKES = { atOnce: 100, perSecond: 400 };
/** The maximum number of TLS identities whose contexts and sessions are cached. The oldest are evicted first. */
const MAX_CACHED_IDENTITIES = 500;

/**
 * Creates the HTTP client of a process: HTTP/1.1 only (HTTP/2 would send the contract's headers in lower case), with
 * keep-alive. The guard checks every address and port; proxy variables are ignored.
 *
 * @param maxConnections the limit of connections, idle and in use, above which idle ones are closed
 * @param proxy opens the connections to the checked addresses. Undefined to connect directly
 * @param handshakes paces new connections. Defaults to HANDSHAKES
 */
export function createHttpClient(
  guard: AddressGuard,
  maxConnections: number,
  proxy?: OutboundProxy,
  handshakes = new Pacer(HANDSHAKES, systemClock),
): Connections {
  let made: Connect | undefined;
  // Identities share no TLS context and no session: a resumed session would authenticate as another identity.
  const ofIdentities = new IdentityCache(MAX_CACHED_IDENTITIES, createConnect);

  function connectorOf(tls: TlsIdentity | undefined): Connect {
    if (tls) return ofIdentities.of(tls);
    made ??= createConnect();
    return made;
  }

  return new Connections({
    maxConnections,
    pipelining: 1,
    allowH2: false,
    keepAliveTimeout: KEEP_ALIVE_MS,
    // A receiver's Keep-Alive hint may shorten the timeout, never extend it.
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    // Each attempt has one timer for headers and body together.
    headersTimeout: 0,
    bodyTimeout: 0,
    maxHeaderSize: 16 * 1024,
    connect(options, callback, tls) {
      const host = bareHost(options.hostname);
      let isCancelled = false;
      let cancel: (() => void) | undefined;
      const connectDirectly = (addresses: LookupAddress[]) => {
        try {
          // An outbound proxy gets all addresses: it may have the family that this machine lacks.
          return connectorOf(tls)(options, withoutMissingFamily(addresses), callback);
        } catch (error) {
          // The certificate or its key cannot be used.
          callback(error as Error, null);
          return undefined;
        }
      };
      const open = (addresses: LookupAddress[]) => {
        if (isCancelled) return;
        if (proxy) {
          const target = { addresses: addresses.map(({ address }) => address), port: portOf(options) };
          cancel = connectThrough(proxy, target, callback, (tunnel, tell) =>
            connectorOf(tls)({ ...options, httpSocket: tunnel }, addresses, tell),
          );
        } else {
          const socket = connectDirectly(addresses);
          cancel = () => socket?.destroy();
        }
      };
      // A literal address needs no lookup.
      const isAddress = isIP(host) !== 0;
      let free = () => {};
      try {
        guard.checkPort(portOf(options));
        if (isAddress) guard.check(host);
        // Before the lookup, so that the backlog counts the connection from this call on.
        free = handshakes.take(() => {
          if (isAddress) open([{ address: host, family: isIP(host) }]);
          else guard.resolve(host).then(open, (error: Error) => callback(error, null));
        });
      } catch (error) {
        callback(error as Error, null);
      }
      // Also called if the lookup fails: no handshake needs the slot.
      return () => {
        isCancelled = true;
        (cancel ?? free)();
      };
    },
  });
}

function portOf({ port }: buildConnector.Options): number {
  return Number(port || HTTPS_PORT);
}

/**
 * Opens a tunnel, and the receiver's TLS in it, within CONNECT_TIMEOUT_MS together. Returns a function that aborts it.
 *
 * @param startTls starts TLS over the tunnel
 */
function connectThrough(
  proxy: OutboundProxy,
  target: TunnelTarget,
  callback: buildConnector.Callback,
  startTls: (tunnel: Socket, tell: buildConnector.Callback) => Socket | undefined,
): () => void {
  const cancelled = new AbortController();
  const end = performance.now() + CONNECT_TIMEOUT_MS;
  let socket: Socket | undefined;
  let timer: NodeJS.Timeout | undefined;
  const tell: buildConnector.Callback = (...result) => {
    clearTimeout(timer);
    callback(...result);
  };
  proxy.open(target, CONNECT_TIMEOUT_MS, cancelled.signal).then(
    (tunnel) => {
      if (cancelled.signal.aborted) {
        tunnel.destroy();
        tell(new errors.ClientDestroyedError(), null);
        return;
      }
      timer = setTimeout(
        () => socket?.destroy(new errors.ConnectTimeoutError()),
        Math.max(0, end - performance.now()),
      );
      try {
        socket = startTls(tunnel, tell);
      } catch (error) {
        // The certificate or its key cannot be used.
        tunnel.destroy();
        tell(error as Error, null);
      }
    },
    (error: Error) => tell(error, null),
  );
  return () => {
    clearTimeout(timer);
    cancelled.abort();
    socket?.destroy();
  };
}

type Connect = (
  options: buildConnector.Options,
  addresses: LookupAddress[],
  callback: buildConnector.Callback,
) => Socket | undefined;

/** Connects to addresses that are already resolved and checked, so that the connection timeout includes no lookup. */
function createConnect(tls?: TlsIdentity): Connect {
  /** Addresses by host name during `connector()`, within which Node calls `lookup`. */
  const checked = new Map<string, LookupAddress[]>();
  const lookup: LookupFunction = (hostname, options, callback) => {
    const addresses = checked.get(hostname);
    const first = addresses?.[0];
    if (!first) callback(new Error(`no checked address of ${hostname}`), "", 0);
    else if (options.all) callback(null, addresses);
    else callback(null, first.address, first.family);
  };
  const connector = buildConnector({
    // Shared: otherwise each connection reads the certificates of the authorities again.
    secureContext: createSecureContext(tls && contextOptions(tls)),
    // The default follows NODE_TLS_REJECT_UNAUTHORIZED, which may be set for another part of the process.
    rejectUnauthorized: true,
    allowH2: false,
    timeout: CONNECT_TIMEOUT_MS,
    lookup,
    autoSelectFamily: true,
    keepAlive: true,
  });
  return (options, addresses, callback) => {
    checked.set(options.hostname, addresses);
    try {
      // The connector returns the socket, which its type does not declare.
      return connector(options, callback) as unknown as Socket;
    } catch (error) {
      // After an asynchronous lookup no caller would catch this error.
      callback(error as Error, null);
      return undefined;
    } finally {
      checked.delete(options.hostname);
    }
  };
}

/** Authorities of an identity replace the public ones; host names are verified as before. */
function contextOptions({ settings: { client, authorities } }: TlsIdentity): SecureContextOptions {
  return {
    ...(client ? { cert: client.certificate, key: client.key } : {}),
    ...(authorities === null ? {} : { ca: authorities }),
  };
}
