import type { Http2Server } from "node:http2";
import type { Server, Socket } from "node:net";
import type { Logger } from "pino";
import { type ProxyTrust, plainAddress } from "../auth/client-address.ts";
import { AddressCounter } from "../limits/address-counter.ts";
import { IdleSessions } from "./http2-sessions.ts";

/** The interval between log lines about refused connections, in milliseconds. */
const LOG_INTERVAL_MS = 60_000;

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
 */
export function limitConnections(server: Server, limits: ConnectionLimits): void {
  const { max, maxPerAddress, isTrusted, log } = limits;
  const counter = new AddressCounter(maxPerAddress, isTrusted);
  const warn = atIntervals((refused, peer = "") => {
    const address = plainAddress(peer);
    const settings = "MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, TRUST_PROXY";
    log.warn({ refused, address, max, maxPerAddress, settings }, "connections refused");
  });
  const idle = new IdleSessions();
  // HTTP/1.1 servers never have sessions.
  idle.watch(server as Http2Server);
  server.maxConnections = max;
  server.on("drop", (data) => warn(data?.remoteAddress));
  server.prependListener("connection", (socket: Socket) => {
    const address = socket.remoteAddress ?? "";
    const leave = counter.enter(address, () => idle.closeOldest(address));
    if (leave) {
      socket.once("close", leave);
      return;
    }
    warn(address);
    socket.destroy();
  });
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
