import { type ConnectRouter, type ConnectRouterOptions, createRouterTransport } from "@connectrpc/connect";
import { admittedGate, closeGate, requestGate } from "./auth/auth.ts";
import {
  addressValues,
  createAddressReader,
  createProxyTrust,
  createTlsReader,
} from "./auth/client-address.ts";
import type { ApiContext } from "./context.ts";
import { explainEarlyRefusals } from "./errors/early-refusals.ts";
import { refusal, stoppingError } from "./errors/errors.ts";
import {
  endingInterceptor,
  errorInterceptor,
  fieldsInterceptor,
  readingInterceptor,
  silenceInterceptor,
} from "./interceptors.ts";
import { AddressCounter, MAX_PUBLIC_CALLS } from "./limits/address-counter.ts";
import { HeldBytes } from "./limits/held-bytes.ts";
import { RPC_COMPRESSION } from "./listeners/compression.ts";
import type { ConnectionLimits } from "./listeners/connection-limits.ts";
import { listenForGrpc } from "./listeners/grpc-listener.ts";
import { listenForHttp, type TlsOptions } from "./listeners/http-listener.ts";
import type { KeepAlive } from "./listeners/http2-sessions.ts";
import type { Listener } from "./listeners/listening.ts";
import { createRpcHandlers } from "./listeners/rpc-handlers.ts";
import { createReadiness } from "./readiness.ts";
import { Admissions } from "./rest/admissions.ts";
import { restBindings } from "./rest/bindings.ts";
import { createRoutes, SERVICES } from "./routes.ts";
import { watchForSilence } from "./silent-database.ts";

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
  /** Folder of the built settings page; without one, its addresses say what to do. */
  page?: string | undefined;
  /** Whether each request is logged; false unless told. */
  accessLog?: boolean;
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

/** How long calls that were ended have to tell their callers so. */
const FAREWELL_MS = 250;
/** The memory that request messages may take, over all calls, in bytes: four messages of the largest size. */
const MAX_HELD_BYTES = 16 * 1_024 * 1_024;

/**
 * Starts the listeners: REST, Connect and gRPC-Web on the HTTP port, gRPC on its own, or all on one with TLS.
 *
 * @throws Error naming the port and its variable when a port cannot be had
 */
export async function startApi(context: ApiContext, options: ApiOptions): Promise<Api> {
  const { host = "127.0.0.1", tls, drainMs = 10_000, keepAlive, accessLog = false } = options;
  const stopping = new AbortController();
  const readiness = createReadiness(context);
  const { limits, log } = context;
  const isTrusted = createProxyTrust(limits.trustedProxies);
  const readAddress = createAddressReader(limits.trustedProxies);
  const contextValues = addressValues(readAddress, createTlsReader(limits.trustedProxies));
  /** Ends what has not finished in time. */
  const ending = new AbortController();
  const database = watchForSilence(context.db, log);
  const addServices = createRoutes(context, readiness, stopping.signal);
  const routes = (router: ConnectRouter) => {
    addServices(router);
    explainEarlyRefusals(router, context.instruments);
  };
  const routerOptions: ConnectRouterOptions = {
    interceptors: [
      errorInterceptor(context.log, context.instruments),
      silenceInterceptor(database),
      endingInterceptor(context.log),
      readingInterceptor,
      fieldsInterceptor,
    ],
    requestGate: requestGate(context, database),
    // A name misspelt in a filter, or in what a key may do, would otherwise widen it to everything.
    jsonOptions: { ignoreUnknownFields: false },
    // Nothing reads unknown fields, and a message of 4 MiB can hold two million of them.
    binaryOptions: { readUnknownFields: false },
    ...RPC_COMPRESSION,
    shutdownSignal: ending.signal,
  };
  const connections: ConnectionLimits = {
    max: limits.maxConnections,
    maxPerAddress: limits.maxConnectionsPerAddress,
    isTrusted,
    log,
  };
  const http2 = { maxStreams: limits.http2MaxStreams, resetsPerSecond: limits.http2ResetsPerSecond };
  const admissions = new Admissions();
  const services = options.services
    ? {
        handlers: createRpcHandlers({
          routes,
          routerOptions,
          contextValues,
          readAddress,
          heldBytes: new HeldBytes(MAX_HELD_BYTES),
          publicCalls: new AddressCounter(MAX_PUBLIC_CALLS, isTrusted),
          idleMs: limits.requestIdleMs,
          log,
        }),
        readAddress,
        transport: createRouterTransport(routes, {
          router: { ...routerOptions, requestGate: admittedGate(admissions) },
        }),
        admissions,
        database,
        bindings: restBindings(SERVICES),
        page: options.page,
      }
    : undefined;

  const http = await listenForHttp(context, {
    host,
    port: options.httpPort,
    tls,
    drainMs: drainMs + FAREWELL_MS,
    keepAlive,
    connections,
    http2,
    accessLog,
    readiness,
    services,
  });
  let grpc: Listener | undefined;
  try {
    if (services && !tls)
      grpc = await listenForGrpc({
        host,
        port: options.grpcPort,
        drainMs: drainMs + FAREWELL_MS,
        keepAlive,
        connections,
        http2,
        accessLog: accessLog ? log : undefined,
        handlers: services.handlers,
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
      const reason = refusal(stoppingError());
      stopping.abort(reason);
      const late = setTimeout(() => ending.abort(reason), drainMs);
      await Promise.all([http.close(), grpc?.close()]);
      clearTimeout(late);
      await closeGate(context);
    },
  };
}
