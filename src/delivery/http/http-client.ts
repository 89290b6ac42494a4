import type { LookupAddress } from "node:dns";
import { isIP, type LookupFunction, type Socket } from "node:net";
import { createSecureContext } from "node:tls";
import { buildConnector } from "undici";
import { systemClock } from "../../process/clock.ts";
import type { AddressGuard } from "../request/address-guard.ts";
import { bareHost, HTTPS_PORT } from "../request/target-url.ts";
import { Connections } from "./connections.ts";
import { createPacer } from "./pacer.ts";

/**
 * The timeout of a connection including TLS, in milliseconds. It starts after the DNS lookup and the wait for a
 * handshake slot.
 */
const CONNECT_TIMEOUT_MS = 5_000;
/**
 * The keep-alive timeout of idle connections, in milliseconds. Shorter than the five seconds after which many servers
 * close idle connections, because a request that crosses such a close fails.
 */
const KEEP_ALIVE_MS = 4_000;
/** Limits of TLS handshakes: the burst and the rate per second. Each handshake occupies the thread for 1 ms. */
const HANDSHAKES = { atOnce: 100, perSecond: 400 };

/**
 * Creates the HTTP client of a process: HTTP/1.1 only (HTTP/2 would send the contract's headers in lower case), with
 * keep-alive. The guard checks every address and port; proxy variables are ignored.
 *
 * @param maxConnections the limit of connections, idle and in use, above which idle ones are closed
 */
export function createHttpClient(guard: AddressGuard, maxConnections: number): Connections {
  let made: Connect | undefined;
  const handshake = createPacer(HANDSHAKES, systemClock);
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
    connect(options, callback) {
      made ??= createConnect();
      const connect = made;
      const host = bareHost(options.hostname);
      let socket: Socket | undefined;
      let isCancelled = false;
      const start = (addresses: LookupAddress[]) =>
        handshake(() => {
          if (!isCancelled) socket = connect(options, addresses, callback);
        });
      try {
        guard.checkPort(Number(options.port || HTTPS_PORT));
        // A literal address needs no lookup.
        if (isIP(host) !== 0) {
          guard.check(host);
          start([]);
        } else {
          guard.resolve(host).then(start, (error: Error) => callback(error, null));
        }
      } catch (error) {
        callback(error as Error, null);
      }
      return () => {
        isCancelled = true;
        socket?.destroy();
      };
    },
  });
}

type Connect = (
  options: buildConnector.Options,
  addresses: LookupAddress[],
  callback: buildConnector.Callback,
) => Socket | undefined;

/** Connects to addresses that are already resolved and checked, so that the connection timeout includes no lookup. */
function createConnect(): Connect {
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
    secureContext: createSecureContext(),
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
