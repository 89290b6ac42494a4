import { createServer, type ServerHttp2Session } from "node:http2";
import type { AddressInfo } from "node:net";
import type { ConnectRouter, ConnectRouterOptions } from "@connectrpc/connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { DomainError } from "../domain-error.ts";
import type { AddressValues } from "./client-address.ts";
import { grpcSpelling } from "./early-refusals.ts";
import { refusal } from "./errors.ts";
import { type KeepAlive, tendSessions } from "./http2-sessions.ts";
import { type Listener, listenError } from "./listening.ts";

type AdapterOptions = Parameters<typeof connectNodeAdapter>[0];

/** What the listener serves and where. */
export interface GrpcListenerOptions {
  host: string;
  /** 0: any free one. */
  port: number;
  /** How long calls in flight may take to finish once the service stops. */
  drainMs: number;
  keepAlive: KeepAlive | undefined;
  routes: (router: ConnectRouter) => void;
  routerOptions: ConnectRouterOptions;
  /** Tells the gate where a request comes from. */
  contextValues: AddressValues;
}

/** gRPC over cleartext HTTP/2, which Node cannot serve on the port of HTTP/1.1. */
export async function listenForGrpc(options: GrpcListenerOptions): Promise<Listener> {
  const { routes, routerOptions, contextValues } = options;
  const adapter = { routes, contextValues, ...routerOptions, fallback: answerUnknownMethod };
  const server = createServer(connectNodeAdapter(adapter));
  tendSessions(server, options.keepAlive);
  const sessions = new Set<ServerHttp2Session>();
  server.on("session", (session) => {
    sessions.add(session);
    session.once("close", () => sessions.delete(session));
    // What is not HTTP/2 ends its own connection and nothing else.
    session.on("error", () => session.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (error) => reject(listenError(error, options.port, "GRPC_PORT")));
    server.listen(options.port, options.host, resolve);
  });

  return {
    port: (server.address() as AddressInfo).port,
    async close() {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      for (const session of sessions) session.close();
      const force = setTimeout(() => {
        for (const session of sessions) session.destroy();
      }, options.drainMs);
      await closed;
      clearTimeout(force);
    },
  };
}

/** Clients of gRPC expect a status of gRPC, and show what HTTP says as a riddle. */
const answerUnknownMethod: NonNullable<AdapterOptions["fallback"]> = (request, response) => {
  const path = request.url?.split("?", 1)[0] ?? "";
  const error = new DomainError(
    "UNIMPLEMENTED",
    `there is no method ${path}; list the services by reflection`,
  );
  const status = setTrailerStatus(new Headers({ "Content-Type": "application/grpc" }), refusal(error));
  status.set("grpc-message", grpcSpelling(status.get("grpc-message") ?? ""));
  response.writeHead(200, Object.fromEntries(status));
  response.end();
};
