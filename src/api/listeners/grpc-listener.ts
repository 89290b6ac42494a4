import { createServer, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { AddressInfo } from "node:net";
import type { Logger } from "pino";
import type { RpcHandler } from "../rpc/rpc-handlers.ts";
import { answerUnknownMethod, LISTED_BY_REFLECTION } from "../rpc/unknown-method.ts";
import { logAccess } from "./access-log.ts";
import { answerClasses } from "./answer-headers.ts";
import { type ConnectionLimits, limitConnections } from "./connection-limits.ts";
import { type Http2Limits, http2Options, limitStreams, tendSessions } from "./http2-sessions.ts";
import { type Listener, listenError } from "./listening.ts";

/** Options of the gRPC listener. */
export interface GrpcListenerOptions {
  host: string;
  /** 0 for any free port. */
  port: number;
  /** The time for calls in flight to complete at shutdown, in milliseconds. */
  drainMs: number;
  connections: ConnectionLimits;
  http2: Http2Limits;
  /** The logger of each request. Undefined: requests are not logged. */
  accessLog: Logger | undefined;
  /** By path. */
  handlers: ReadonlyMap<string, RpcHandler>;
}

/** Serves gRPC over cleartext HTTP/2, which Node cannot serve on the same port as HTTP/1.1. */
export async function listenForGrpc(options: GrpcListenerOptions): Promise<Listener> {
  const { handlers, connections, http2 } = options;
  const answer = (request: Http2ServerRequest, response: Http2ServerResponse) => {
    const path = request.url?.split("?", 1)[0] ?? "";
    const handler = handlers.get(path);
    if (handler) handler(request, response);
    else
      answerUnknownMethod(
        { contentType: request.headers["content-type"], path },
        response,
        LISTED_BY_REFLECTION,
      );
  };
  const server = createServer({ ...http2Options(http2), ...answerClasses(false) }, answer);
  const open = limitConnections(server, connections);
  if (options.accessLog) logAccess(server, options.accessLog);
  tendSessions(server);
  limitStreams(server, connections.isTrusted, open.block);
  // A client that does not use HTTP/2 affects only its own connection.
  server.on("session", (session) => session.on("error", () => session.destroy()));
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(listenError(error, options.port, "GRPC_PORT")));
    server.listen(options.port, options.host, resolve);
  });

  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      const force = setTimeout(open.closeAll, options.drainMs);
      // Tells the clients of all sessions.
      await new Promise((resolve) => server.close(resolve));
      clearTimeout(force);
    },
  };
}
