import type { Server as HttpServer, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** The maximum number of pipelined requests of an HTTP/1.1 connection. */
export const MAX_PIPELINED = 4;
/** The maximum size of a body that is read and discarded to reuse its connection, in bytes. */
const MAX_DISCARDED_BYTES = 65_536;
/** The time for a client to read a response whose request was not read completely, in milliseconds. */
const LINGER_MS = 1_000;

/**
 * Limits the work that one HTTP/1.1 connection causes.
 *
 * - A request that was answered before a long body arrived closes its connection. Node would read the rest of the
 * body, whatever its length. The client still gets the response: the connection is closed for writing first, and
 * destroyed a second later.
 * - A client that sends more requests than MAX_PIPELINED without reading responses loses its connection.
 *
 * Must be called after all request listeners were added, because it calls them.
 */
export function boundHttp1Requests(server: HttpServer): void {
  const unanswered = new WeakMap<Socket, Set<ServerResponse>>();

  /** Whether the request is to be handled. */
  function admit(request: IncomingMessage, response: ServerResponse): boolean {
    if (request.httpVersionMajor !== 1) return true;
    const { socket } = request;
    // Node's parser continues with buffered data after a connection is destroyed.
    if (socket.destroyed) return false;
    let responses = unanswered.get(socket);
    if (!responses) {
      const own = new Set<ServerResponse>();
      unanswered.set(socket, own);
      socket.once("close", () => closeAll(own));
      responses = own;
    }
    if (responses.size >= MAX_PIPELINED) {
      destroyWithoutStacks(socket);
      return false;
    }
    const open = responses.add(response);
    response.once("close", () => open.delete(response));
    if (mayBeLong(request)) closeIfUnread(request, response);
    return true;
  }

  const handlers = server.listeners("request");
  server.removeAllListeners("request");
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    if (!admit(request, response)) return;
    for (const handle of handlers) handle.call(server, request, response);
  });
}

/**
 * Destroys a connection. Node creates an error for each of its requests, possibly hundreds. With their stack traces, 1,000 connections
 * with 800 requests each take 5.6 s of processor time instead of 2.2.
 */
function destroyWithoutStacks(socket: Socket): void {
  const { stackTraceLimit } = Error;
  socket.prependOnceListener("close", () => {
    Error.stackTraceLimit = 0;
  });
  socket.once("close", () => {
    Error.stackTraceLimit = stackTraceLimit;
  });
  socket.destroy();
}

/** Closes all responses. Node notifies only the first of several responses that the connection is closed. */
function closeAll(responses: Iterable<ServerResponse>): void {
  for (const response of responses) {
    response.destroy();
    response.emit("close");
  }
}

/** Whether a body may be too long to read for reusing the connection. */
function mayBeLong({ headers }: IncomingMessage): boolean {
  return (
    headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > MAX_DISCARDED_BYTES
  );
}

/** Node's internal mark of a response after which it destroys the connection. */
interface LastResponse {
  _last: boolean;
}

/** Node's internal mark of a request whose body is being read. `read(0)` sets it only while its buffer is not full. */
interface ConsumedRequest {
  _consuming: boolean;
}

/** Closes the connection after the response if the body has not arrived by then, without reading more of it. */
function closeIfUnread(request: IncomingMessage, response: ServerResponse): void {
  const { socket } = request;
  const writeHead = response.writeHead.bind(response) as (...given: unknown[]) => ServerResponse;
  let closes = false;
  // Node writes every response head with this method. A client that is not told would reuse the connection.
  response.writeHead = (...given: unknown[]) => {
    closes = !request.complete;
    if (closes) response.setHeader("Connection", "close");
    return writeHead(...given);
  };
  response.once("prefinish", () => {
    if (!closes) return;
    // Node reads the rest of an unread body. With this mark it stays in the buffer and the socket.
    (request as unknown as ConsumedRequest)._consuming = true;
    // Node would destroy the connection immediately, which resets it, and the client could lose the response.
    (response as unknown as LastResponse)._last = false;
  });
  response.once("finish", () => {
    if (!closes) return;
    socket.end();
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
  });
}
