import type { Http2Server } from "node:http2";
import type { Server, Socket } from "node:net";
import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import { plainAddress, siteOf } from "../../calls/index.ts";
import type { ProxyTrust } from "../context/client-address.ts";
import { AddressCounter } from "../limits/address-counter.ts";
import { IdleSessions } from "./http2-sessions.ts";

/** The interval between log lines about refused connections, in milliseconds. */
const LOG_INTERVAL_MS = 60_000;

/** The time for which a blocked address gets no connection, in milliseconds. */
const BLOCK_MS = 10_000;
const BLOCKED =
  "an address opened too many HTTP/2 streams or reset them, and gets no connection for some time";

/** Limits on connections of a listener. */
export interface ConnectionLimits {
  /** The maximum number of connections in total. */
  max: number;
  /** The maximum number per address. IPv6 addresses count by /64. */
  maxPerAddress: number;
  /** Addresses without a limit. */
  isTrusted: ProxyTrust;
  log: Logger;
}

/**
 * Closes connections above the limits immediately. Open connections are kept, except that a new one replaces the same
 * address's oldest HTTP/2 session without streams.
 *
 * Must be called before other listeners for the server's connections are added.
 *
 * @returns closes all connections of an address, and refuses others of it for BLOCK_MS
 */
export function limitConnections(server: Server, limits: ConnectionLimits): (address: string) => void {
  const { max, maxPerAddress, isTrusted, log } = limits;
  const counter = new AddressCounter(maxPerAddress, isTrusted);
  const warn = atIntervals((refused, peer = "") => {
    const address = plainAddress(peer);
    const settings = "MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, TRUST_PROXY";
    log.warn({ refused, address, max, maxPerAddress, settings }, "connections refused");
  });
  const blocked = new LRUCache<string, true>({ max: 10_000, ttl: BLOCK_MS });
  const open = new Set<Socket>();
  const idle = new IdleSessions();
  // HTTP/1.1 servers never have sessions.
  idle.watch(server as Http2Server);
  server.maxConnections = max;
  server.on("drop", (data) => warn(data?.remoteAddress));
  server.prependListener("connection", (socket: Socket) => {
    const address = socket.remoteAddress ?? "";
    const leave = blocked.has(siteOf(address))
      ? undefined
      : counter.enter(address, () => idle.closeOldest(address));
    if (leave) {
      open.add(socket);
      socket.once("close", () => {
        open.delete(socket);
        leave();
      });
      return;
    }
    warn(address);
    socket.destroy();
  });
  return (address) => {
    const site = siteOf(address);
    blocked.set(site, true);
    for (const socket of open) if (siteOf(socket.remoteAddress ?? "") === site) socket.destroy();
    log.warn({ address: plainAddress(address), seconds: BLOCK_MS / 1_000 }, BLOCKED);
  };
}

/** Reports the first event immediately, then the number of events per interval, with the latest address. */
function atIntervals(
  report: (count: number, address: string | undefined) => void,
): (address: string | undefined) => void {
  let count = 0;
  let reportedAt = Number.NEGATIVE_INFINITY;
  return (address) => {
    count += 1;
    const now = performance.now();
    if (now - reportedAt < LOG_INTERVAL_MS) return;
    report(count, address);
    reportedAt = now;
    count = 0;
  };
}
