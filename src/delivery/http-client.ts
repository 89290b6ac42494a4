import { isIP } from "node:net";
import { createSecureContext } from "node:tls";
import { buildConnector } from "undici";
import type { AddressGuard } from "./address-guard.ts";
import { HostPools } from "./host-pools.ts";
import { bareHost } from "./target-url.ts";

/** A connection must stand within this time, in milliseconds; name look-up and TLS included. */
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
 * alive, bounded per host and in all, every address through the guard, proxy variables ignored.
 *
 * @param connectionsPerHost most connections to one host and port
 */
export function createHttpClient(guard: AddressGuard, connectionsPerHost: number): HostPools {
  let made: buildConnector.connector | undefined;
  const connector = () => {
    made ??= buildConnector({
      // One for all: each connection would make its own, with the authorities' certificates read anew.
      secureContext: createSecureContext(),
      allowH2: false,
      timeout: CONNECT_TIMEOUT_MS,
      lookup: guard.lookup,
      keepAlive: true,
    });
    return made;
  };
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
      const host = bareHost(options.hostname);
      if (isIP(host) !== 0) {
        // A literal address is never looked up, so it is judged here.
        try {
          guard.check(host);
        } catch (error) {
          callback(error as Error, null);
          return;
        }
      }
      connector()(options, callback);
    },
  });
}
