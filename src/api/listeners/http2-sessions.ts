import {
  constants,
  type Http2SecureServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from "node:http2";
import { siteOf } from "../auth/client-address.ts";

/** The interval between PING frames, in milliseconds: below the idle timeout of common gateways, one minute. */
const PING_INTERVAL_MS = 30_000;
/** The time to wait for the response to a PING before the session is closed, in milliseconds. */
const PING_TIMEOUT_MS = 20_000;

/** Limits of one HTTP/2 session. */
export interface Http2Limits {
  /** The maximum number of streams open at once. */
  maxStreams: number;
  /** The number of streams that the client may reset per second, on average; beyond it the session is closed. */
  resetsPerSecond: number;
}

/** The burst of stream resets, in seconds' worth of `resetsPerSecond`. */
const RESET_BURST_S = 10;
/** The maximum size of a request's headers, in bytes, with 32 bytes for each header (RFC 9113, 6.5.2). */
const MAX_HEADER_BYTES = 16_384;
/** The size that HTTP/2 adds for each header, in bytes. */
const HEADER_OVERHEAD_BYTES = 32;
/** The number of invalid frames after which a session is closed. */
const MAX_INVALID_FRAMES = 100;
/** The number of streams above `maxStreams` after which a session is closed. */
const MAX_REJECTED_STREAMS = 100;

/** The delay after a response without trailers until an unfinished request is reset, in milliseconds. */
const RESET_DELAY_MS = 1_000;

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
 * The idle sessions of a server (without open streams), by client address. Without closing them, clients that open a
 * connection per call and leave it open would reach the limit of connections.
 */
export class IdleSessions {
  /** By address, longest idle first. */
  readonly #idle = new Map<string, Set<ServerHttp2Session>>();

  /** Watches the sessions of a server. */
  watch(server: Http2Server | Http2SecureServer): void {
    server.on("session", (session) => this.#watch(session));
  }

  /** Closes the longest idle session of an address. Returns false if there is none. */
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

/** Adds behaviour that gRPC clients expect and Node does not implement to all sessions of a server. */
export function tendSessions(server: Http2Server | Http2SecureServer): void {
  server.on("session", pingWhileOpen);
  server.on("stream", (stream, _headers, _flags, rawHeaders) => {
    refuseLongHeaders(stream as ServerHttp2Stream, rawHeaders);
    closeOnceAnswered(stream as ServerHttp2Stream);
  });
}

/**
 * Resets a stream whose headers exceed MAX_HEADER_BYTES. Node does so only after the client has acknowledged the limit: until then, which
 * may be never, 64 KiB are allowed.
 */
function refuseLongHeaders(stream: ServerHttp2Stream, rawHeaders: readonly string[]): void {
  let bytes = (rawHeaders.length / 2) * HEADER_OVERHEAD_BYTES;
  for (const text of rawHeaders) bytes += text.length;
  if (bytes > MAX_HEADER_BYTES) stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
}

/** Sends PING frames. Without them, a vanished peer would keep its session and streams open until TCP times out. */
function pingWhileOpen(session: ServerHttp2Session): void {
  let overdue: NodeJS.Timeout | undefined;
  const interval = setInterval(() => {
    // One unanswered ping is enough to decide.
    if (overdue || session.destroyed) return;
    const sent = session.ping((error) => {
      clearTimeout(overdue);
      overdue = undefined;
      if (error && !session.destroyed) session.destroy();
    });
    if (sent) overdue = setTimeout(() => session.destroy(), PING_TIMEOUT_MS);
  }, PING_INTERVAL_MS);
  session.once("close", () => {
    clearInterval(interval);
    clearTimeout(overdue);
  });
}

/**
 * Tells the caller of a call that was answered early that nothing more is read. Otherwise a client that continues to
 * send, or never ends its side, would keep the stream open and delay shutdown.
 */
function closeOnceAnswered(stream: ServerHttp2Stream): void {
  const close = () => {
    if (!stream.closed && !stream.readableEnded) stream.close(constants.NGHTTP2_NO_ERROR);
  };
  // The last moment before the response is complete: other listeners of this event set its trailers.
  stream.once("wantTrailers", () => setImmediate(close));
  // A response without trailers has no such event, and Node does not tell which kind it is.
  stream.once("finish", () => {
    if (stream.readableEnded) return;
    const timer = setTimeout(close, RESET_DELAY_MS);
    stream.once("close", () => clearTimeout(timer));
  });
}
