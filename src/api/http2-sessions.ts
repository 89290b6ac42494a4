import {
  constants,
  type Http2SecureServer,
  type Http2Server,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from "node:http2";

/** How a server finds out that a peer is gone without having said so. */
export interface KeepAlive {
  /** A session is pinged this often. */
  everyMs: number;
  /** A session whose peer has not answered by then is ended. */
  timeoutMs: number;
}

/** Often enough for the gateways between, many of which forget a connection after a minute of silence. */
const KEEP_ALIVE: KeepAlive = { everyMs: 30_000, timeoutMs: 20_000 };

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
  // The last moment before the answer is complete: its trailers are given in this event, by listeners of the same.
  stream.once("wantTrailers", () => {
    setImmediate(() => {
      if (!stream.closed && !stream.readableEnded) stream.close(constants.NGHTTP2_NO_ERROR);
    });
  });
}
