import type { Server as HttpServer, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** The maximum number of requests of one HTTP/1.1 connection that wait for their answers (pipelining). */
export const MAX_PIPELINED = 4;
/** Bodies up to this length, in bytes, are read and discarded, so that their connections can be used again. */
const DISCARDED_BYTES = 65_536;
/** How long a client has to read an answer whose request was not read to the end, in milliseconds. */
const LINGER_MS = 1_000;

/**
 * Bounds what one HTTP/1.1 connection makes the server do.
 *
 * - A request that was answered before a long body arrived closes its connection. Node would read the rest of the body,
 *   however long. The client gets the answer: the connection is closed for writing first, and destroyed a second later.
 * - A client that sends more requests than MAX_PIPELINED without reading answers loses its connection.
 *
 * Call it after all listeners for requests were added: it calls them.
 */
export function boundHttp1Requests(server: HttpServer): void {
  const unanswered = new WeakMap<Socket, Set<ServerResponse>>();

  /** Whether the request is to be answered. */
  function admit(request: IncomingMessage, response: ServerResponse): boolean {
    if (request.httpVersionMajor !== 1) return true;
    const { socket } = request;
    // Node's parser goes on with what it has read when a connection is destroyed.
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
 * Destroys a connection. Node makes an error for each of its requests, hundreds of them, and the stacks of these errors
 * would cost more than all else that such a client does.
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

/** Node tells only the first of several responses that its connection is closed. The others would wait for ever. */
function closeAll(responses: Iterable<ServerResponse>): void {
  for (const response of responses) {
    response.destroy();
    response.emit("close");
  }
}

/** Whether the rest of a body is not worth reading to keep the connection. */
function mayBeLong({ headers }: IncomingMessage): boolean {
  return (
    headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > DISCARDED_BYTES
  );
}

/** Node's own mark of a response after which it destroys the connection. */
interface LastResponse {
  _last: boolean;
}

/** Node's own mark of a request whose body somebody has begun to read. `read(0)` sets it only while its buffer is not full. */
interface ConsumedRequest {
  _consuming: boolean;
}

/** Closes the connection with the answer when the body has not arrived by then, and reads no more of the body. */
function closeIfUnread(request: IncomingMessage, response: ServerResponse): void {
  const { socket } = request;
  const writeHead = response.writeHead.bind(response) as (...given: unknown[]) => ServerResponse;
  let closes = false;
  // Node writes every head by this method. A client that is not told would use the connection again.
  response.writeHead = (...given: unknown[]) => {
    closes = !request.complete;
    if (closes) response.setHeader("Connection", "close");
    return writeHead(...given);
  };
  response.once("prefinish", () => {
    if (!closes) return;
    // Node reads the rest of a body that nobody has begun to read. This one stays in its buffer and in the connection.
    (request as unknown as ConsumedRequest)._consuming = true;
    // Node would destroy the connection at once, which resets it: the client could lose the answer.
    (response as unknown as LastResponse)._last = false;
  });
  response.once("finish", () => {
    if (!closes) return;
    socket.end();
    setTimeout(() => socket.destroy(), LINGER_MS).unref();
  });
}
