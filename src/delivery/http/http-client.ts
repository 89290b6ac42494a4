import type { LookupAddress } from "node:dns";
import { isIP, type LookupFunction, type Socket } from "node:net";
import { createSecureContext } from "node:tls";
import { buildConnector } from "undici";
import { systemClock } from "../../process/clock.ts";
import type { AddressGuard } from "../request/address-guard.ts";
import { bareHost, HTTPS_PORT } from "../request/target-url.ts";
import { Connections } from "./connections.ts";
import { createPacer } from "./pacer.ts";

/** Timeout of a connection, TLS included, in milliseconds. It starts after the lookup of the name and the wait for the handshake's turn. */
const CONNECT_TIMEOUT_MS = 5_000;
/**
 * An idle connection is kept this long for the next delivery to the same host: less than the five seconds after which
 * many servers close theirs, since a request that crosses such a close on its way is a failed attempt.
 */
const KEEP_ALIVE_MS = 4_000;
/** TLS handshakes that may start at once, and a second: each takes the thread a millisecond. */
const HANDSHAKES = { atOnce: 100, perSecond: 400 };

/**
 * The one HTTP client of a process: HTTP/1.1 only (HTTP/2 would lower-case the contract's headers), connections kept
 * alive, every address and port through the guard, proxy variables ignored.
 *
 * @param maxConnections idle ones are kept while there are no more than so many in all
 */
export function createHttpClient(guard: AddressGuard, maxConnections: number): Connections {
  let made: Connect | undefined;
  const handshake = createPacer(HANDSHAKES, systemClock);
  return new Connections({
    maxConnections,
    pipelining: 1,
    allowH2: false,
    keepAliveTimeout: KEEP_ALIVE_MS,
    // A receiver's hint may shorten it, not lengthen it.
    keepAliveMaxTimeout: KEEP_ALIVE_MS,
    // Each attempt has a timer of its own, over headers and body together.
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
        // A literal address is never looked up.
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

/** Makes connections to addresses that have been looked up and checked before, so that no timeout includes a lookup. */
function createConnect(): Connect {
  /** By host name, while its connection starts: Node asks for the addresses within the call. */
  const checked = new Map<string, LookupAddress[]>();
  const lookup: LookupFunction = (hostname, options, callback) => {
    const addresses = checked.get(hostname);
    const first = addresses?.[0];
    if (!first) callback(new Error(`no checked address of ${hostname}`), "", 0);
    else if (options.all) callback(null, addresses);
    else callback(null, first.address, first.family);
  };
  const connector = buildConnector({
    // One for all: each connection would make its own, with the authorities' certificates read anew.
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
      // It answers the socket, which its type does not say.
      return connector(options, callback) as unknown as Socket;
    } catch (error) {
      // After a lookup nobody else would catch it.
      callback(error as Error, null);
      return undefined;
    } finally {
      checked.delete(options.hostname);
    }
  };
}
