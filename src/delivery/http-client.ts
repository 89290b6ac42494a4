import type { LookupAddress } from "node:dns";
import { isIP, type LookupFunction } from "node:net";
import { createSecureContext } from "node:tls";
import { buildConnector } from "undici";
import type { AddressGuard } from "./address-guard.ts";
import { HostPools } from "./host-pools.ts";
import { bareHost, HTTPS_PORT } from "./target-url.ts";

/** Timeout of a connection, TLS included, in milliseconds. It starts after the lookup of the name. */
const CONNECT_TIMEOUT_MS = 5_000;
/**
 * An idle connection is kept this long for the next delivery to the same host: less than the five seconds after which
 * many servers close theirs, since a request that crosses such a close on its way is a failed attempt.
 */
const KEEP_ALIVE_MS = 4_000;
/** Hosts that keep connections at the same time. */
const MAX_HOSTS = 1_000;

/**
 * The one HTTP client of a process: HTTP/1.1 only (HTTP/2 would lower-case the contract's headers), connections kept
 * alive, bounded per host and in all, every address and port through the guard, proxy variables ignored.
 *
 * @param connectionsPerHost most connections to one host and port
 */
export function createHttpClient(guard: AddressGuard, connectionsPerHost: number): HostPools {
  let made: Connect | undefined;
  return new HostPools(MAX_HOSTS, {
    connections: connectionsPerHost,
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
      try {
        guard.checkPort(Number(options.port || HTTPS_PORT));
        // A literal address is never looked up.
        if (isIP(host) !== 0) {
          guard.check(host);
          connect(options, [], callback);
          return;
        }
      } catch (error) {
        callback(error as Error, null);
        return;
      }
      guard.resolve(host).then(
        (addresses) => connect(options, addresses, callback),
        (error: Error) => callback(error, null),
      );
    },
  });
}

type Connect = (
  options: buildConnector.Options,
  addresses: LookupAddress[],
  callback: buildConnector.Callback,
) => void;

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
      connector(options, callback);
    } catch (error) {
      // After a lookup nobody else would catch it.
      callback(error as Error, null);
    } finally {
      checked.delete(options.hostname);
    }
  };
}
