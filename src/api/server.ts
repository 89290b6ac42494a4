import { type ConnectRouterOptions, createRouterTransport } from "@connectrpc/connect";
import { type OnRefused, reasonOf, refusal, stoppingError } from "../calls/errors/index.ts";
import { addressValues } from "../calls/index.ts";
import { clientAddress } from "../config/index.ts";
import { readPastChanges } from "../event-types/index.ts";
import { Admissions, admittedGate, createGate, requestGate } from "../keys/gate/index.ts";
import { createAddressReader, createProxyTrust } from "./context/client-address.ts";
import type { ApiContext } from "./context/context.ts";
import { createPublicAddressReader } from "./context/public-address.ts";
import { createReadiness } from "./context/readiness.ts";
import { watchForSilence } from "./context/silent-database.ts";
import {
  endingInterceptor,
  errorInterceptor,
  fieldsInterceptor,
  readingInterceptor,
  silenceInterceptor,
  traceInterceptor,
} from "./interceptors.ts";
import { HeldBytes, KeyShares } from "./limits/held-bytes.ts";
import type { BasePathReader } from "./listeners/base-path.ts";
import { RPC_COMPRESSION } from "./listeners/compression.ts";
import type { ConnectionLimits } from "./listeners/connection-limits.ts";
import { listenForGrpc } from "./listeners/grpc-listener.ts";
import { listenForHttp, type TlsOptions } from "./listeners/http-listener.ts";
import type { Listener } from "./listeners/listening.ts";
import { restBindings } from "./rest/bindings.ts";
import { type CreateServices, createRoutes } from "./routes.ts";
import { createRpcHandlers } from "./rpc/rpc-handlers.ts";
import { CallTurns, type TurnsOf } from "./turns/call-turns.ts";
import { readsMuch } from "./turns/heavy-methods.ts";

/** Options of `startApi`. */
export interface ApiOptions {
  host?: string;
  /** 0 for any free port. */
  httpPort: number;
  /** 0 for any free port. Not used with TLS, which serves gRPC on the HTTP port. */
  grpcPort: number;
  /** The path prefix of the API and its pages behind a proxy, such as `/webhooks`. Defaults to none. */
  basePath?: string;
  tls?: TlsOptions | undefined;
  /** Without services, only /healthz and /readyz are served, for processes that only deliver. */
  services?: CreateServices | undefined;
  /** The folder of the built admin UI. Without one, its addresses return instructions. */
  page?: string | undefined;
  /** Whether each request is logged; false unless told. */
  accessLog?: boolean;
  /** Whether the event types are shown to people without a key. Defaults to false. */
  publicCatalogue?: boolean;
  /** The time for calls in flight to finish once the service stops, in milliseconds. Defaults to 10,000. */
  drainMs?: number;
  /** The maximum duration of a statement of a call that reads much, in milliseconds. Defaults to 30,000. */
  maxReadMs?: number;
}

/** A running API. */
export interface Api {
  httpPort: number;
  /** Null if gRPC has no separate port: with TLS, or without services. */
  grpcPort: number | null;
  /** The URL for callers on this machine. */
  url: string;
  /** Serves on, but ends each HTTP/1.1 connection with its next response, so that clients and proxies leave. */
  turnAway(): void;
  /** Uses another certificate for new connections. @throws Error if certificate and key do not fit each other */
  setCertificate(tls: TlsOptions): void;
  /** Stops accepting calls and completes those in flight within a limited time. */
  stop(): Promise<void>;
}

/** The time for ended calls to send their error, in milliseconds. */
const ERROR_GRACE_MS = 250;
/**
 * The memory that request messages may take, over all calls of methods that need a key, in bytes. Beside one key, there is room for a
 * message of the largest size, compressed and decompressed.
 */
const MAX_HELD_BYTES = 12 * 1_024 * 1_024;
/** The part of it that the messages of one key may take, in bytes: two messages of the largest size. */
const MAX_KEY_HELD_BYTES = 8 * 1_024 * 1_024;
/** The same for methods that need no key. Separate, so that callers without a key cannot use the memory for calls with a key. */
const MAX_PUBLIC_HELD_BYTES = 16 * 1_024 * 1_024;
/** The same for RegisterEventTypes: one message of the largest size, compressed and decompressed. */
const MAX_HUGE_HELD_BYTES = 44 * 1_024 * 1_024;

/**
 * Starts the listeners: REST, Connect and gRPC-Web on the HTTP port and gRPC on its own, or all on one port with TLS.
 *
 * @throws Error that names the port and its variable if it is not available
 */
export async function startApi(context: ApiContext, options: ApiOptions): Promise<Api> {
  const { host = "127.0.0.1", tls, drainMs = 10_000, accessLog = false } = options;
  const stopping = new AbortController();
  const readiness = createReadiness(context);
  const { limits, log } = context;
  const isTrusted = createProxyTrust(limits.trustedProxies);
  const readAddress = createAddressReader(limits.trustedProxies);
  const readPublic = createPublicAddressReader(isTrusted, options.basePath ?? "");
  const contextValues = addressValues(readAddress, readPublic);
  /** Ends calls that have not completed in time. */
  const ending = new AbortController();
  const database = watchForSilence(context.db, log, context.isPrepared ?? (() => true));
  const onRefused: OnRefused = (error) => {
    context.instruments.refusals.add(1, { reason: reasonOf(error) });
  };
  const gate = createGate(context);
  const served = options.services?.(gate, stopping.signal) ?? [];
  const addServices = createRoutes(served, readiness, stopping.signal);
  const optionsOf = (refused: OnRefused, turns?: TurnsOf): ConnectRouterOptions => ({
    interceptors: [
      ...(context.tracer ? [traceInterceptor(context.tracer)] : []),
      errorInterceptor(context.log, context.instruments, refused),
      silenceInterceptor(database),
      endingInterceptor(context.log, context.works, turns),
      readingInterceptor,
      fieldsInterceptor,
    ],
    // Unknown fields are not used, and a message of 4 MiB can contain two million of them.
    binaryOptions: { readUnknownFields: false },
    ...RPC_COMPRESSION,
    shutdownSignal: ending.signal,
  });
  const turns = new CallTurns(context.db.client.pool.max, readsMuch(served), options.maxReadMs);
  // The failures of REST count its refused calls.
  const uncounted: OnRefused = () => {};
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
          routes: addServices,
          routerOptions: {
            ...optionsOf(onRefused, turns.of),
            requestGate: requestGate(gate, context, database),
          },
          contextValues,
          heldBytes: new HeldBytes(MAX_HELD_BYTES, "messages of all API keys"),
          keyShares: new KeyShares(MAX_KEY_HELD_BYTES),
          publicHeldBytes: new HeldBytes(MAX_PUBLIC_HELD_BYTES, "messages of all calls without a key"),
          hugeHeldBytes: new HeldBytes(MAX_HUGE_HELD_BYTES, "sets of event types"),
          onRefused,
          idleMs: limits.requestIdleMs,
          log,
        }),
        readAddress,
        transport: createRouterTransport(addServices, {
          router: { ...optionsOf(uncounted, turns.ofContract), requestGate: admittedGate(admissions) },
        }),
        admissions,
        gate,
        database,
        bindings: restBindings(served.map(({ service }) => service)),
        page: options.page,
        publicCatalogue: options.publicCatalogue ?? false,
        historyOf: (process: number) => readPastChanges(context.db, [process]),
        basePath: ((request) => readPublic(request).basePath) satisfies BasePathReader,
      }
    : undefined;

  const http = await listenForHttp(context, {
    host,
    port: options.httpPort,
    tls,
    drainMs: drainMs + ERROR_GRACE_MS,
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
        drainMs: drainMs + ERROR_GRACE_MS,
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
    url: `${tls ? "https" : "http"}://${clientAddress(host, http.port)}`,
    turnAway: http.turnAway,
    setCertificate: http.setCertificate,
    async stop() {
      const reason = refusal(stoppingError());
      stopping.abort(reason);
      const late = setTimeout(() => ending.abort(reason), drainMs);
      await Promise.all([http.close(), grpc?.close()]);
      clearTimeout(late);
      await gate.close();
    },
  };
}
