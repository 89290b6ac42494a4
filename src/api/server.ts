import { type ConnectRouterOptions, createRouterTransport } from "@connectrpc/connect";
import { closeGate, requestGate } from "./auth.ts";
import { addressValues, createAddressReader } from "./client-address.ts";
import type { ApiContext } from "./context.ts";
import { refusal, stoppingError } from "./errors.ts";
import { listenForGrpc } from "./grpc-listener.ts";
import { listenForHttp, type TlsOptions } from "./http-listener.ts";
import type { KeepAlive } from "./http2-sessions.ts";
import { errorInterceptor } from "./interceptors.ts";
import type { Listener } from "./listening.ts";
import { createReadiness } from "./readiness.ts";
import { restBindings } from "./rest/bindings.ts";
import { createRoutes, SERVICES } from "./routes.ts";

/** Where and what `startApi` serves. */
export interface ApiOptions {
  host?: string;
  /** 0: any free one. */
  httpPort: number;
  /** 0: any free one. Not used with TLS, which has gRPC on the HTTP port. */
  grpcPort: number;
  tls?: TlsOptions | undefined;
  /** False: only /healthz and /readyz, for processes that only deliver. */
  services: boolean;
  /** How long calls in flight may take to finish once the service stops: 10 s unless told. */
  drainMs?: number;
  /** Pings of HTTP/2 sessions: every 30 s, each to be answered within 20 s, unless told. */
  keepAlive?: KeepAlive | undefined;
}

/** A running API. */
export interface Api {
  httpPort: number;
  /** Null when gRPC has no port of its own: with TLS, or without services. */
  grpcPort: number | null;
  /** Address for callers on this machine. */
  url: string;
  /** Stops accepting, finishes what is in flight for a bounded time. */
  stop(): Promise<void>;
}

/** The largest message in either direction of a call, in bytes: a payload of 256 KiB fits in every encoding. */
const MAX_MESSAGE_BYTES = 4 * 1024 * 1024;

/**
 * Starts the listeners: REST, Connect and gRPC-Web on the HTTP port, gRPC on its own, or all on one with TLS.
 *
 * @throws Error naming the port and its variable when a port cannot be had
 */
export async function startApi(context: ApiContext, options: ApiOptions): Promise<Api> {
  const { host = "127.0.0.1", tls, drainMs = 10_000, keepAlive } = options;
  const stopping = new AbortController();
  const readiness = createReadiness(context);
  const routes = createRoutes(context, readiness, stopping.signal);
  const readAddress = createAddressReader(context.limits.trustedProxies);
  const contextValues = addressValues(readAddress);
  const routerOptions: ConnectRouterOptions = {
    interceptors: [errorInterceptor(context.log)],
    requestGate: requestGate(context),
    readMaxBytes: MAX_MESSAGE_BYTES,
  };
  const services = options.services
    ? {
        routes,
        routerOptions,
        contextValues,
        readAddress,
        transport: createRouterTransport(routes, { router: routerOptions }),
        bindings: restBindings(SERVICES),
      }
    : undefined;

  const http = await listenForHttp(context, {
    host,
    port: options.httpPort,
    tls,
    drainMs,
    keepAlive,
    readiness,
    services,
  });
  let grpc: Listener | undefined;
  try {
    if (services && !tls)
      grpc = await listenForGrpc({
        host,
        port: options.grpcPort,
        drainMs,
        keepAlive,
        routes,
        routerOptions,
        contextValues,
      });
  } catch (error) {
    await http.close();
    throw error;
  }
  return {
    httpPort: http.port,
    grpcPort: grpc?.port ?? null,
    url: `${tls ? "https" : "http"}://localhost:${http.port}`,
    async stop() {
      stopping.abort(refusal(stoppingError()));
      await Promise.all([http.close(), grpc?.close()]);
      await closeGate(context);
    },
  };
}
