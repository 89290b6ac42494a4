import type { Http2Server, ServerHttp2Session } from "node:http2";
import type { Server, Socket } from "node:net";
import { LRUCache } from "lru-cache";
import type { Logger } from "pino";
import { plainAddress, siteOf } from "../../calls/index.ts";
import type { ProxyTrust } from "../context/client-address.ts";
import { ByAddress } from "../limits/by-address.ts";

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

/** The connections of a listener. */
export interface OpenConnections {
  /** Closes all connections of an address, and refuses others of it for BLOCK_MS. */
  block(address: string): void;
  /** Closes all connections. */
  closeAll(): void;
}

/**
 * Closes connections above the limits immediately. Open connections are kept, except that a new one replaces the same
 * address's oldest HTTP/2 session without streams: clients that open a connection per call and leave it open would otherwise reach
 * the limit.
 *
 * Must be called before other listeners for the server's connections are added.
 */
export function limitConnections(server: Server, limits: ConnectionLimits): OpenConnections {
  const { max, maxPerAddress, isTrusted, log } = limits;
  const blocked = new LRUCache<string, true>({ max: 10_000, ttl: BLOCK_MS });
  const all = new Set<Socket>();
  const sockets = new ByAddress<Socket>();
  // HTTP/1.1 servers never have sessions.
  const idle = idleSessions(server as Http2Server);
  let refused = 0;
  let loggedAt = Number.NEGATIVE_INFINITY;

  function refuse(peer = ""): void {
    refused += 1;
    const now = performance.now();
    if (now - loggedAt < LOG_INTERVAL_MS) return;
    const settings = "MAX_CONNECTIONS, MAX_CONNECTIONS_PER_ADDRESS, TRUST_PROXY";
    log.warn({ refused, address: plainAddress(peer), max, maxPerAddress, settings }, "connections refused");
    loggedAt = now;
    refused = 0;
  }

  function mayEnter(address: string): boolean {
    if (blocked.has(siteOf(address))) return false;
    if (isTrusted(address) || sockets.of(address).size < maxPerAddress) return true;
    const oldest = [...idle.of(address)].find((session) => !session.closed);
    oldest?.close();
    return oldest !== undefined;
  }

  server.maxConnections = max;
  server.on("drop", (data) => refuse(data?.remoteAddress));
  server.prependListener("connection", (socket: Socket) => {
    const address = socket.remoteAddress ?? "";
    if (!mayEnter(address)) {
      refuse(address);
      socket.destroy();
      return;
    }
    all.add(socket);
    const leave = sockets.add(address, socket);
    socket.once("close", () => {
      all.delete(socket);
      leave();
    });
  });
  return {
    block(address) {
      blocked.set(siteOf(address), true);
      for (const socket of sockets.of(address)) socket.destroy();
      log.warn({ address: plainAddress(address), seconds: BLOCK_MS / 1_000 }, BLOCKED);
    },
    closeAll() {
      for (const socket of all) socket.destroy();
    },
  };
}

/** The sessions of a server without open streams, those that are idle for longest first. */
function idleSessions(server: Http2Server): ByAddress<ServerHttp2Session> {
  const idle = new ByAddress<ServerHttp2Session>();
  server.on("session", (session) => {
    const address = session.socket.remoteAddress ?? "";
    let streams = 0;
    let leave = idle.add(address, session);
    session.on("stream", (stream) => {
      streams += 1;
      leave();
      stream.once("close", () => {
        streams -= 1;
        if (streams === 0 && !session.closed) leave = idle.add(address, session);
      });
    });
    session.once("close", () => leave());
  });
  return idle;
}
