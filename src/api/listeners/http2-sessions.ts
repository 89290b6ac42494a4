import {
  constants,
  type Http2SecureServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from "node:http2";
import { siteOf } from "../auth/client-address.ts";

/** How a server finds out that a peer is gone without having said so. */
export interface KeepAlive {
  /** A session is pinged this often. */
  everyMs: number;
  /** A session whose peer has not answered by then is ended. */
  timeoutMs: number;
}

/** Often enough for the gateways between, many of which forget a connection after a minute of silence. */
const KEEP_ALIVE: KeepAlive = { everyMs: 30_000, timeoutMs: 20_000 };

/** What one HTTP/2 session may do. */
export interface Http2Limits {
  /** The maximum number of streams open at once. */
  maxStreams: number;
  /** The number of streams that the client may reset per second, on average; beyond it the session is closed. */
  resetsPerSecond: number;
}

/** How many seconds' worth of resets may come at once. */
const RESET_BURST_S = 10;
/** The maximum size of a request's headers, in bytes. */
const MAX_HEADER_BYTES = 16_384;
/** The number of invalid frames after which a session is closed. */
const MAX_INVALID_FRAMES = 100;
/** The number of streams above `maxStreams` after which a session is closed. */
const MAX_REJECTED_STREAMS = 100;

/** How long after an answer without trailers an unfinished request is reset, in milliseconds. */
const ANSWERED_MS = 1_000;

/** The limits as options of Node's HTTP/2 servers. */
export function http2Options({ maxStreams, resetsPerSecond }: Http2Limits): ServerOptions {
  return {
    settings: { maxConcurrentStreams: maxStreams, maxHeaderListSize: MAX_HEADER_BYTES },
    streamResetRate: resetsPerSecond,
    streamResetBurst: resetsPerSecond * RESET_BURST_S,
    maxSessionInvalidFrames: MAX_INVALID_FRAMES,
    maxSessionRejectedStreams: MAX_REJECTED_STREAMS,
  };
}

/**
 * The sessions of a server that have no open stream, by client address. Clients that make a connection for each call, and
 * leave it open, would otherwise reach the limit of connections.
 */
export class IdleSessions {
  /** By address, the one that has been idle for longest first. */
  readonly #idle = new Map<string, Set<ServerHttp2Session>>();

  /** Watches the sessions of a server. */
  watch(server: Http2Server | Http2SecureServer): void {
    server.on("session", (session) => this.#watch(session));
  }

  /** Closes the session of an address that has been idle for longest; false when it has none. */
  closeOldest(address: string): boolean {
    const site = siteOf(address);
    const [oldest] = this.#idle.get(site) ?? [];
    if (!oldest) return false;
    this.#leave(site, oldest);
    oldest.close();
    return true;
  }

  #watch(session: ServerHttp2Session): void {
    const site = siteOf(session.socket.remoteAddress ?? "");
    let streams = 0;
    this.#enter(site, session);
    session.on("stream", (stream) => {
      streams += 1;
      this.#leave(site, session);
      stream.once("close", () => {
        streams -= 1;
        if (streams === 0 && !session.closed) this.#enter(site, session);
      });
    });
    session.once("close", () => this.#leave(site, session));
  }

  #enter(site: string, session: ServerHttp2Session): void {
    const idle = this.#idle.get(site) ?? new Set();
    this.#idle.set(site, idle.add(session));
  }

  #leave(site: string, session: ServerHttp2Session): void {
    const idle = this.#idle.get(site);
    idle?.delete(session);
    if (idle?.size === 0) this.#idle.delete(site);
  }
}

/** Does for every HTTP/2 session of a server what gRPC clients expect and Node leaves to others. */
export function tendSessions(server: Http2Server | Http2SecureServer, keepAlive = KEEP_ALIVE): void {
  server.on("session", (session) => pingWhileOpen(session, keepAlive));
  server.on("stream", (stream) => closeOnceAnswered(stream as ServerHttp2Stream));
}

/** Pings are answered by Node; a dead peer, though, would hold its session and its streams until TCP gives up. */
function pingWhileOpen(session: ServerHttp2Session, { everyMs, timeoutMs }: KeepAlive): void {
  let overdue: NodeJS.Timeout | undefined;
  const interval = setInterval(() => {
    // One unanswered ping is enough to decide by.
    if (overdue || session.destroyed) return;
    const sent = session.ping((error) => {
      clearTimeout(overdue);
      overdue = undefined;
      if (error && !session.destroyed) session.destroy();
    });
    if (sent) overdue = setTimeout(() => session.destroy(), timeoutMs);
  }, everyMs);
  session.once("close", () => {
    clearInterval(interval);
    clearTimeout(overdue);
  });
}

/**
 * Tells the caller of a call that was answered early that nothing more is read. Otherwise the stream of a caller who
 * goes on sending, or never ends its side, would stay open, and keep the service from stopping.
 */
function closeOnceAnswered(stream: ServerHttp2Stream): void {
  const close = () => {
    if (!stream.closed && !stream.readableEnded) stream.close(constants.NGHTTP2_NO_ERROR);
  };
  // The last moment before the answer is complete: its trailers are given in this event, by listeners of the same.
  stream.once("wantTrailers", () => setImmediate(close));
  // An answer without trailers has no such event, and Node does not say which kind an answer is.
  stream.once("finish", () => {
    if (stream.readableEnded) return;
    const timer = setTimeout(close, ANSWERED_MS);
    stream.once("close", () => clearTimeout(timer));
  });
}
