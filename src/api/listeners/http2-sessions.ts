import {
  constants,
  type Http2SecureServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type ServerOptions,
} from "node:http2";
import { getHeapStatistics } from "node:v8";
import { LRUCache } from "lru-cache";
import { siteOf } from "../../calls/index.ts";
import type { ProxyTrust } from "../context/client-address.ts";
import { ByAddress } from "../limits/by-address.ts";

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

/** The share of the heap that open streams may take, and the memory of one with its call, in bytes. */
const STREAMS_SHARE = 1 / 4;
const STREAM_BYTES = 16 * 1_024;
/** The part of these streams that one address may have. */
const STREAMS_PER_ADDRESS = 1 / 4;
/** The number of streams that begin at once in one turn of the event loop. */
const BEGUN_AT_ONCE = 16;
/** The time in which the rest begins at the end of one turn of the event loop, in milliseconds. */
const SLICE_MS = 5;
/** The number of streams that one address may have refused, or reset before they begin, within a second. */
const MAX_WASTED_PER_SECOND = 1_000;

/** The delay after a response without trailers until an unfinished request is reset, in milliseconds. */
const RESET_DELAY_MS = 1_000;

/** The limits as options of Node's HTTP/2 servers. */
export function http2Options({ maxStreams, resetsPerSecond }: Http2Limits): ServerOptions {
  return {
    settings: { maxConcurrentStreams: maxStreams, maxHeaderListSize: MAX_HEADER_BYTES },
    streamResetRate: resetsPerSecond,
    streamResetBurst: resetsPerSecond * RESET_BURST_S,
  };
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
 * Refuses streams above the number that fits in a quarter of the heap, of which one address may have a quarter: clients may send them
 * again. Of the others, a few begin at once, and the rest at the end of the turn of the event loop, for some milliseconds of each turn:
 * thousands of them delay no other connection, and those that their client has reset by then cost nothing. Without it, 200 connections
 * that open 100 streams each, or reset them, end a process with 512 MiB (`npm run bench -- guards`).
 *
 * Must be called after all listeners for streams are added.
 *
 * @param block told of an address with `maxWasted` refused or reset streams within a second
 */
export function limitStreams(
  server: Http2Server | Http2SecureServer,
  isTrusted: ProxyTrust,
  block: (address: string) => void,
  maxWasted = MAX_WASTED_PER_SECOND,
): void {
  const max = Math.floor((getHeapStatistics().heap_size_limit * STREAMS_SHARE) / STREAM_BYTES);
  const ofAddresses = new ByAddress<ServerHttp2Stream>();
  const wasted = new LRUCache<string, { streams: number }>({ max: 10_000, ttl: 1_000 });
  const waiting: (() => void)[] = [];
  let open = 0;
  let begun = 0;
  const turnOver = () => {
    begun = 0;
    const end = performance.now() + SLICE_MS;
    for (let next = waiting.shift(); next; next = performance.now() < end ? waiting.shift() : undefined)
      next();
    if (waiting.length > 0) setImmediate(turnOver);
  };
  const waste = (address: string) => {
    if (isTrusted(address)) return;
    const site = siteOf(address);
    const count = wasted.get(site) ?? { streams: 0 };
    if (count.streams === 0) wasted.set(site, count);
    count.streams += 1;
    if (count.streams === maxWasted) block(address);
  };
  const isFull = (address: string) =>
    open >= max || (ofAddresses.of(address).size >= max * STREAMS_PER_ADDRESS && !isTrusted(address));
  const handlers = server.listeners("stream");
  server.removeAllListeners("stream");
  server.on("stream", (stream: ServerHttp2Stream, ...more: unknown[]) => {
    const address = stream.session?.socket.remoteAddress ?? "";
    stream.on("error", ignore);
    if (isFull(address)) {
      stream.close(constants.NGHTTP2_REFUSED_STREAM);
      waste(address);
      return;
    }
    open += 1;
    const leave = ofAddresses.add(address, stream);
    stream.once("close", () => {
      open -= 1;
      leave();
    });
    const begin = () => {
      if (stream.destroyed || stream.closed) {
        waste(address);
        return;
      }
      stream.off("error", ignore);
      for (const handle of handlers) handle.call(server, stream, ...more);
      // An empty body has ended before anything listened.
      if (stream.readableEnded) stream.emit("end");
    };
    if (begun === 0 && waiting.length === 0) setImmediate(turnOver);
    begun += 1;
    if (begun > BEGUN_AT_ONCE) waiting.push(begin);
    else begin();
  });
}

const ignore = () => {};

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
