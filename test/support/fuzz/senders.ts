import * as http from "node:http";
import * as http2 from "node:http2";
import * as https from "node:https";
import { createConnection } from "node:net";
import * as tls from "node:tls";
import { PATIENCE_MS } from "../patience.ts";
import type { FuzzRequest } from "./fuzz-request.ts";

/** How long a stream that may last is read once it began, in milliseconds. */
const READ_MS = 60;
/** Connections of HTTP/2 that calls take turns on. */
const SESSIONS = 4;
const HOST = "127.0.0.1";
/** The service's certificate is made for the run. */
const TLS_OPTIONS = { rejectUnauthorized: false };

/** "closed": the stream or connection was ended without an answer. "unsendable": Node's client refuses to send the request. */
type Outcome = "answered" | "closed" | "unanswered" | "unsendable";

/** What became of a request. */
export interface Answer {
  outcome: Outcome;
  status: number;
  headers: Record<string, string>;
  trailers: Record<string, string>;
  body: Buffer;
  /** Whether the body was read to its end. */
  isWhole: boolean;
  /** Whether the connection was closed, or may have been, for what came before on it. */
  isReused: boolean;
  /** Why there is no answer, or only part of one. */
  error?: string | undefined;
}

/** Where a request goes. */
export interface Ports {
  httpPort: number;
  /** With TLS, the same as `httpPort`. */
  grpcPort: number;
  tls: boolean;
}

/** Sends one request. What has come is put into the answer; the function that is returned ends the request. */
type Act = (answer: Answer, done: (outcome: Outcome, error?: string) => void) => () => void;

function exchange(act: Act): Promise<Answer> {
  return new Promise((resolve) => {
    let abort = () => {};
    const nothing = { status: 0, headers: {}, trailers: {}, body: Buffer.alloc(0) };
    const answer: Answer = { outcome: "unanswered", ...nothing, isWhole: false, isReused: false };
    const done = (outcome: Outcome, error?: string) => {
      clearTimeout(timer);
      resolve({ ...answer, outcome, error });
    };
    const timer = setTimeout(() => {
      done("unanswered");
      abort();
    }, PATIENCE_MS);
    try {
      abort = act(answer, done);
    } catch (error) {
      done("unsendable", String(error));
    }
  });
}

/** Whether an answer may never end. */
const lasts = ({ rpc }: FuzzRequest) =>
  rpc?.methodKind === "server_streaming" || rpc?.methodKind === "bidi_streaming";

const collect = (answer: Answer) => (chunk: Buffer) => {
  answer.body = Buffer.concat([answer.body, chunk]);
};

function sendHttp1(agent: http.Agent, port: number, request: FuzzRequest): Promise<Answer> {
  return exchange((answer, done) => {
    const { method, path, headers, unfinished } = request;
    const body = method === "TRACE" ? undefined : request.body;
    // Node frames the body of a GET only if a header says how; unframed, it would be a second request.
    const framing = unfinished ? { "transfer-encoding": "chunked" } : { "content-length": body?.length };
    const sent = (agent instanceof https.Agent ? https : http).request({
      agent,
      host: HOST,
      port,
      method,
      path,
      headers: { ...(body ? framing : {}), ...headers },
      setHost: !("host" in headers),
    });
    const closed = (why: string) => {
      answer.isReused = sent.reusedSocket;
      done("closed", why);
    };
    sent.on("error", (error) => closed(error.message)).on("close", () => closed("closed"));
    sent.on("response", (response) => {
      answer.status = response.statusCode ?? 0;
      answer.headers = flat(response.headers);
      const finish = (isWhole: boolean) => {
        answer.isWhole = isWhole;
        answer.trailers = flat(response.trailers);
        done("answered");
        if (!isWhole || unfinished) sent.destroy();
      };
      if (lasts(request)) setTimeout(finish, READ_MS, false).unref();
      response.on("data", collect(answer));
      response.on("end", () => finish(true)).on("error", () => finish(false));
    });
    if (!unfinished) sent.end(body);
    else if (body) sent.write(body);
    else sent.flushHeaders();
    return () => sent.destroy();
  });
}

function sendHttp2(session: http2.ClientHttp2Session, request: FuzzRequest): Promise<Answer> {
  return exchange((answer, done) => {
    const { host, expect: _, ...headers } = request.headers;
    const head = { ":method": request.method, ":path": request.path };
    const authority = host === undefined ? {} : { ":authority": host };
    const stream = session.request({ ...head, ...authority, ...headers }, { endStream: false });
    const abort = () => stream.close(http2.constants.NGHTTP2_CANCEL);
    stream.on("response", (got) => {
      answer.status = Number(got[":status"]);
      answer.headers = flat(got);
      const end = () => {
        done("answered");
        abort();
      };
      if (lasts(request)) setTimeout(end, READ_MS).unref();
    });
    stream.on("trailers", (got) => {
      answer.trailers = flat(got);
    });
    stream.on("data", collect(answer));
    // The client of an unfinished request ends it once it has the answer.
    stream.on("end", () => void (request.unfinished && stream.end()));
    stream.on("error", () => {});
    stream.on("close", () => {
      const error = stream.rstCode === 0 ? undefined : `reset with ${stream.rstCode}`;
      // Requests that violate HTTP/2 end their session, and what others have open on it.
      answer.isReused = session.closed || session.destroyed;
      answer.isWhole = error === undefined;
      done(answer.status === 0 || (answer.isReused && error) ? "closed" : "answered", error);
    });
    if (!request.unfinished) stream.end(request.body);
    else if (request.body) stream.write(request.body);
    return abort;
  });
}

/** Writes bytes, ends its side of the connection, and reads to the end of the other. */
function sendBytes(ports: Ports, { over, body = Buffer.alloc(0) }: FuzzRequest): Promise<Answer> {
  return exchange((answer, done) => {
    const isHttp2 = over === "HTTP/2";
    const place = { host: HOST, port: isHttp2 ? ports.grpcPort : ports.httpPort };
    const write = () => socket.end(body);
    const socket = ports.tls
      ? tls.connect({ ...place, ALPNProtocols: [isHttp2 ? "h2" : "http/1.1"], ...TLS_OPTIONS }, write)
      : createConnection(place, write);
    socket.on("data", collect(answer)).on("error", () => {});
    socket.on("close", () => {
      answer.status = Number(/^HTTP\/1\.1 (\d{3})/.exec(answer.body.toString("latin1", 0, 20))?.[1] ?? 0);
      done(answer.body.length > 0 ? "answered" : "closed");
    });
    return () => socket.destroy();
  });
}

const flat = (headers: http.IncomingHttpHeaders | http2.IncomingHttpHeaders): Record<string, string> =>
  Object.fromEntries(
    Object.entries(headers)
      .filter(([name]) => !name.startsWith(":"))
      .map(([name, value]) => [name, [value].flat().join(", ")]),
  );

/** Opens connections to one service when they are needed, and keeps them. */
export function createSender(ports: Ports) {
  const pool = { keepAlive: true, maxSockets: 64, ...TLS_OPTIONS };
  const agent = ports.tls ? new https.Agent(pool) : new http.Agent(pool);
  const sessions: (http2.ClientHttp2Session | undefined)[] = [];
  let turn = 0;

  function session(): http2.ClientHttp2Session {
    turn = (turn + 1) % SESSIONS;
    const open = sessions[turn];
    if (open && !open.closed && !open.destroyed) return open;
    const opened = http2.connect(`${ports.tls ? "https" : "http"}://${HOST}:${ports.grpcPort}`, TLS_OPTIONS);
    opened.on("error", () => {}).unref();
    sessions[turn] = opened;
    return opened;
  }

  function once(request: FuzzRequest): Promise<Answer> {
    if (request.protocol.startsWith("raw")) return sendBytes(ports, request);
    if (request.over === "HTTP/2") return sendHttp2(session(), request);
    return sendHttp1(agent, ports.httpPort, request);
  }
  return {
    async send(request: FuzzRequest): Promise<Answer> {
      const first = await once(request);
      return first.outcome === "closed" && first.isReused ? once(request) : first;
    },
    close() {
      agent.destroy();
      for (const each of sessions) each?.destroy();
    },
  };
}
