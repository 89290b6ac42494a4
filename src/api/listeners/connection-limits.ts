import type { Http2Server } from "node:http2";
import type { Server, Socket } from "node:net";
import type { Logger } from "pino";
import type { ProxyTrust } from "../auth/client-address.ts";
import { AddressCounter } from "../limits/address-counter.ts";
import { IdleSessions } from "./http2-sessions.ts";

/** The interval between log lines about refused connections, in milliseconds. */
const LOG_INTERVAL_MS = 60_000;

/** How many connections a listener accepts. */
export interface ConnectionLimits {
  /** In total. */
  max: number;
  /** Of one address; IPv6 addresses count by /64. */
  maxPerAddress: number;
  /** Addresses without a limit of their own. */
  isTrusted: ProxyTrust;
  log: Logger;
}

/**
 * Closes connections above the limits at once. Open connections stay, except that a new one takes the place of the same
 * address's oldest HTTP/2 session without streams.
 *
 * Call it before anything else listens for the server's connections.
 */
export function limitConnections(server: Server, limits: ConnectionLimits): void {
  const { max, maxPerAddress, isTrusted, log } = limits;
  const counter = new AddressCounter(maxPerAddress, isTrusted);
  const warn = atIntervals((refused, address) => {
    const settings = "MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, TRUST_PROXY";
    log.warn({ refused, address, max, maxPerAddress, settings }, "connections refused");
  });
  const idle = new IdleSessions();
  // Servers of HTTP/1.1 never have sessions.
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

/** Reports the first event at once, and then the number of events at intervals, with the latest address. */
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
