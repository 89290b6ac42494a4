import * as http from "node:http";
import * as http2 from "node:http2";
import * as https from "node:https";
import { createConnection } from "node:net";
import * as tls from "node:tls";
import { PATIENCE_MS } from "../patience.ts";
import type { FuzzRequest } from "./fuzz-request.ts";

/** How long a stream that may last is read once it began, in milliseconds. */
const READ_MS = 60;

/** What became of a request. */
export interface Answer {
  outcome: /** An answer, maybe not read to its end. */
    | "answered"
    /** The stream or the connection was ended without one. */
    | "closed"
    /** Nothing, for PATIENCE_MS. */
    | "unanswered"
    /** Node's client refuses to send the request. */
    | "unsendable";
  status: number;
  headers: Record<string, string>;
  trailers: Record<string, string>;
  body: Buffer;
  /** Whether the body was read to its end. */
  whole: boolean;
  ms: number;
  /** Why there is no answer. */
  error?: string;
}

/** Where a request goes. */
export interface Ports {
  httpPort: number;
  /** With TLS, the same as `httpPort`. */
  grpcPort: number;
  tls: boolean;
}

/** The service's certificate is made for the run. */
const TLS_OPTIONS = { rejectUnauthorized: false };

/** Sends requests to one service. */
export interface Sender {
  send(request: FuzzRequest): Promise<Answer>;
  close(): void;
}

/** Connections of HTTP/2 that calls take turns on. */
const SESSIONS = 4;

/** Opens connections when they are needed, and keeps them. */
export function createSender(ports: Ports): Sender {
  const pool = { keepAlive: true, maxSockets: 64 };
  const agent = ports.tls ? new https.Agent({ ...pool, ...TLS_OPTIONS }) : new http.Agent(pool);
  const sessions: (http2.ClientHttp2Session | undefined)[] = [];
  let turn = 0;

  function session(): http2.ClientHttp2Session {
    turn = (turn + 1) % SESSIONS;
    const place = turn;
    const open = sessions[place];
    if (open && !open.closed && !open.destroyed) return open;
    const opened = http2.connect(
      `${ports.tls ? "https" : "http"}://127.0.0.1:${ports.grpcPort}`,
      TLS_OPTIONS,
    );
    opened.on("error", () => {});
    opened.unref();
    sessions[place] = opened;
    return opened;
  }

  async function once(request: FuzzRequest): Promise<Answer & { reused?: boolean }> {
    if (request.protocol.startsWith("raw")) {
      return sendRawBytes(ports, request);
    }
    if (request.over === "HTTP/2") return sendHttp2(session(), request);
    return sendHttp1(agent, ports.httpPort, request);
  }

  return {
    async send(request) {
      const first = await once(request);
      // The connection may have been closed, for what came before on it, while the request was on its way.
      return first.outcome === "closed" && first.reused ? once(request) : first;
    },
    close() {
      agent.destroy();
      for (const each of sessions) each?.destroy();
    },
  };
}

function noAnswer(started: number, outcome: Answer["outcome"], error?: string): Answer {
  return {
    outcome,
    status: 0,
    headers: {},
    trailers: {},
    body: Buffer.alloc(0),
    whole: false,
    ms: performance.now() - started,
    ...(error === undefined ? {} : { error }),
  };
}

/** Whether an answer may never end. */
function lasts({ rpc }: FuzzRequest): boolean {
  return rpc?.methodKind === "server_streaming" || rpc?.methodKind === "bidi_streaming";
}

function sendHttp1(
  agent: http.Agent,
  port: number,
  request: FuzzRequest,
): Promise<Answer & { reused?: boolean }> {
  const started = performance.now();
  return new Promise((resolve) => {
    const { method, path, headers, body } = request;
    let sent: http.ClientRequest;
    const done = (answer: Answer) => {
      clearTimeout(timer);
      resolve({ ...answer, reused: sent?.reusedSocket });
    };
    const timer = setTimeout(() => {
      sent?.destroy();
      done(noAnswer(started, "unanswered"));
    }, PATIENCE_MS);
    try {
      const withBody = body !== undefined && method !== "TRACE";
      const framed = withBody ? framing(request, body) : {};
      sent = (agent instanceof https.Agent ? https : http).request({
        agent,
        host: "127.0.0.1",
        port,
        method,
        path,
        headers: { ...framed, ...headers },
        setHost: !("host" in headers),
      });
      sent.on("error", (error) => done(noAnswer(started, "closed", error.message)));
      sent.on("close", () => done(noAnswer(started, "closed", "closed")));
      sent.on("response", (response) => {
        const chunks: Buffer[] = [];
        const finish = (whole: boolean) => {
          done({
            outcome: "answered",
            status: response.statusCode ?? 0,
            headers: flat(response.headers),
            trailers: flat(response.trailers),
            body: Buffer.concat(chunks),
            whole,
            ms: performance.now() - started,
          });
          if (!whole || request.unfinished) sent.destroy();
        };
        if (lasts(request)) setTimeout(() => finish(false), READ_MS).unref();
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () => finish(true));
        response.on("error", () => finish(false));
      });
      if (request.unfinished) {
        sent.flushHeaders();
        if (withBody) sent.write(body);
      } else {
        sent.end(withBody ? body : undefined);
      }
    } catch (error) {
      done(noAnswer(started, "unsendable", String(error)));
    }
  });
}

/** Node frames the body of a GET only if a header says how; unframed, it would be a second request. */
function framing({ unfinished }: FuzzRequest, body: Buffer): Record<string, string> {
  return unfinished ? { "transfer-encoding": "chunked" } : { "content-length": String(body.length) };
}

function sendHttp2(
  session: http2.ClientHttp2Session,
  request: FuzzRequest,
): Promise<Answer & { reused?: boolean }> {
  const started = performance.now();
  return new Promise((resolve) => {
    const { host, expect: _, ...headers } = request.headers;
    const done = (answer: Answer & { reused?: boolean }) => {
      clearTimeout(timer);
      resolve(answer);
    };
    let stream: http2.ClientHttp2Stream;
    const timer = setTimeout(() => {
      stream?.close(http2.constants.NGHTTP2_CANCEL);
      done(noAnswer(started, "unanswered"));
    }, PATIENCE_MS);
    try {
      stream = session.request(
        {
          ":method": request.method,
          ":path": request.path,
          ...(host === undefined ? {} : { ":authority": host }),
          ...headers,
        },
        { endStream: false },
      );
    } catch (error) {
      // A session that is closing, or a request that Node's client does not take.
      const reused = session.closed || session.destroyed;
      done({ ...noAnswer(started, reused ? "closed" : "unsendable", String(error)), reused });
      return;
    }
    let status = 0;
    let answered: Record<string, string> = {};
    let trailers: Record<string, string> = {};
    let failure: string | undefined;
    const chunks: Buffer[] = [];
    let settled = false;
    const finish = (whole: boolean) => {
      if (settled) return;
      settled = true;
      // Requests that violate HTTP/2 end their session, and what others have open on it.
      const reused = session.closed || session.destroyed;
      if (status === 0 || (reused && stream.rstCode !== 0)) {
        done({ ...noAnswer(started, "closed", failure ?? `reset with ${stream.rstCode}`), reused });
        return;
      }
      done({
        outcome: "answered",
        status,
        headers: answered,
        trailers,
        body: Buffer.concat(chunks),
        whole: whole && stream.rstCode === 0,
        ms: performance.now() - started,
        ...(whole && stream.rstCode !== 0 ? { error: `reset with ${stream.rstCode}` } : {}),
      });
    };
    stream.on("response", (got) => {
      status = Number(got[":status"]);
      answered = flat(got);
      if (lasts(request)) {
        setTimeout(() => {
          if (settled) return;
          finish(false);
          stream.close(http2.constants.NGHTTP2_CANCEL);
        }, READ_MS).unref();
      }
    });
    stream.on("trailers", (got) => {
      trailers = flat(got);
    });
    stream.on("data", (chunk: Buffer) => chunks.push(chunk));
    stream.on("end", () => {
      // The client of an unfinished request ends it once it has the answer.
      if (request.unfinished) stream.end();
    });
    stream.on("error", (error) => {
      failure = error.message;
    });
    stream.on("close", () => finish(true));
    if (request.unfinished) {
      if (request.body !== undefined) stream.write(request.body);
    } else {
      stream.end(request.body);
    }
  });
}

/** Writes bytes, ends its side of the connection, and reads to the end of the other. */
function sendRawBytes(ports: Ports, request: FuzzRequest): Promise<Answer> {
  const toHttp2 = request.over === "HTTP/2";
  const host = "127.0.0.1";
  const port = toHttp2 ? ports.grpcPort : ports.httpPort;
  const ALPNProtocols = [toHttp2 ? "h2" : "http/1.1"];
  const started = performance.now();
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const write = () => socket.end(request.body ?? "");
    const socket = ports.tls
      ? tls.connect({ host, port, ALPNProtocols, ...TLS_OPTIONS }, write)
      : createConnection({ host, port }, write);
    const timer = setTimeout(() => {
      socket.destroy();
      resolve(noAnswer(started, "unanswered"));
    }, PATIENCE_MS);
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.on("error", () => {});
    socket.on("close", () => {
      clearTimeout(timer);
      const body = Buffer.concat(chunks);
      const status = Number(/^HTTP\/1\.1 (\d{3})/.exec(body.toString("latin1", 0, 20))?.[1] ?? 0);
      resolve({ ...noAnswer(started, body.length > 0 ? "answered" : "closed"), status, body });
    });
  });
}

function flat(headers: http.IncomingHttpHeaders | http2.IncomingHttpHeaders): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, [value].flat().join(", ")]),
  );
}
