import type { Server as HttpServer, IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/** The maximum number of requests of one HTTP/1.1 connection that wait for their answers (pipelining). */
export const MAX_PIPELINED = 4;
/** Bodies up to this length, in bytes, are read and discarded, so that their connections can be used again. */
const DISCARDED_BYTES = 65_536;
/** How long after the answer the rest of a body may take to arrive, in milliseconds. */
const GRACE_MS = 250;
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
      socket.destroy();
      return false;
    }
    const open = responses.add(response);
    response.once("close", () => open.delete(response));
    response.once("prefinish", () => {
      if (!request.complete && mayBeLong(request)) closeUnread(request, response);
    });
    return true;
  }

  const handlers = server.listeners("request");
  server.removeAllListeners("request");
  server.on("request", (request: IncomingMessage, response: ServerResponse) => {
    if (!admit(request, response)) return;
    for (const handle of handlers) handle.call(server, request, response);
  });
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

/** Stops reading a body that nobody needs, and closes the connection unless the body ends soon. */
function closeUnread(request: IncomingMessage, response: ServerResponse): void {
  const { socket } = request;
  // Node reads the rest of a body that nobody has begun to read. This one stays in its buffer and in the connection.
  request.read(0);
  response.once("finish", () => {
    // Not cleared when the connection closes: a listener per request would add up on a connection that is kept.
    setTimeout(() => {
      if (request.complete) {
        request.resume();
        return;
      }
      // Destroying at once would reset the connection, and the client could lose the answer.
      socket.end();
      setTimeout(() => socket.destroy(), LINGER_MS).unref();
    }, GRACE_MS).unref();
  });
}
