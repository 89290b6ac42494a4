import { type IncomingMessage, METHODS, maxHeaderSize, type ServerResponse, STATUS_CODES } from "node:http";
import type { Http2SecureServer } from "node:http2";
import type { AddressInfo, Server, Socket } from "node:net";
import type { Transport } from "@connectrpc/connect";
import fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from "fastify";
import type { Admissions, Gate } from "../../keys/gate/index.ts";
import { httpAttributes } from "../../metrics/index.ts";
import type { AddressReader } from "../context/client-address.ts";
import type { ApiContext } from "../context/context.ts";
import type { Readiness } from "../context/readiness.ts";
import type { SilentDatabase } from "../context/silent-database.ts";
import type { RestBinding } from "../rest/bindings.ts";
import { limitHttp2Bodies, MAX_BODY_BYTES } from "../rest/bodies.ts";
import { failureEnvelope, JSON_CONTENT_TYPE, rawFailure } from "../rest/envelope.ts";
import { frameworkFailure, mountFailures, type WhatElse } from "../rest/failures.ts";
import { mountRestGateway } from "../rest/gateway.ts";
import type { RpcHandler } from "../rpc/rpc-handlers.ts";
import { LISTED_BY_REFLECTION } from "../rpc/unknown-method.ts";
import { logAccess } from "./access-log.ts";
import { answerClasses, answerHeaderLines } from "./answer-headers.ts";
import { type BasePathReader, createPrefixRemover, type PrefixRemover } from "./base-path.ts";
import { compressAnswers } from "./compression.ts";
import { type ConnectionLimits, limitConnections } from "./connection-limits.ts";
import { mountDocs, OPENAPI_PATH } from "./docs-pages.ts";
import { type EventPagesParts, mountEventPages } from "./event-pages.ts";
import { type Http2Limits, http2Options, limitStreams, tendSessions } from "./http2-sessions.ts";
import { type Listener, listenError } from "./listening.ts";
import { answerLostBrowser, mountSettingsPage } from "./settings-page.ts";
import { TLS_POLICY } from "./tls.ts";
import { boundHttp1Requests } from "./unread-bodies.ts";

/** Certificate and key, in PEM. */
export interface TlsOptions {
  cert: string | Buffer;
  key: string | Buffer;
}

/** The services of the listener. */
export interface HttpServices {
  /** The methods' handlers, by path. */
  handlers: ReadonlyMap<string, RpcHandler>;
  readAddress: AddressReader;
  /** Calls the same services in memory, for REST. */
  transport: Transport;
  /** Keys of authenticated REST requests, for the gate of `transport`. */
  admissions: Admissions;
  /** Authenticates REST requests. */
  gate: Gate;
  database: SilentDatabase;
  bindings: readonly RestBinding[];
  /** The folder of the built admin UI. */
  page: string | undefined;
  /** Whether the event types are shown to people without a key. */
  publicCatalogue: boolean;
  historyOf: EventPagesParts["historyOf"];
  basePath: BasePathReader;
}

/** Options of the HTTP listener. */
export interface HttpListenerOptions {
  host: string;
  /** 0 for any free port. */
  port: number;
  tls: TlsOptions | undefined;
  /** The time for calls in flight to complete at shutdown, in milliseconds. */
  drainMs: number;
  connections: ConnectionLimits;
  http2: Http2Limits;
  /** Whether each request is logged. */
  accessLog: boolean;
  readiness: Readiness;
  /** Undefined serves only /healthz and /readyz. */
  services: HttpServices | undefined;
}

/** The timeout for receiving a complete request over HTTP/1.1, in milliseconds. With TLS, Node uses 5 minutes. */
const REQUEST_TIMEOUT_MS = 60_000;

const ELSEWHERE = "this process only delivers; call a process with ROLE=api or ROLE=all";
/** Hints in errors for unknown paths and methods, of a process that only delivers. */
const ONLY_DELIVERS: WhatElse = { paths: () => ELSEWHERE, methods: ELSEWHERE };

/** The HTTP listener. */
export interface HttpListener extends Listener {
  /** Ends each HTTP/1.1 connection with its next response. */
  turnAway(): void;
  /** Uses another certificate for new connections. @throws Error if certificate and key do not fit each other */
  setCertificate(tls: TlsOptions): void;
}

/** Serves REST, Connect and gRPC-Web over HTTP/1.1. With TLS, also gRPC and HTTP/2, selected by ALPN. */
export async function listenForHttp(
  context: ApiContext,
  options: HttpListenerOptions,
): Promise<HttpListener> {
  const { services } = options;
  const prefix = services && createPrefixRemover(services.basePath);
  const app = createApp(options.tls, options.http2, prefix);
  const open = limitConnections(app.server, options.connections);
  if (options.accessLog) logAccess(app.server, context.log);
  boundHttp1Requests(app.server);
  answerWhatNodeRefuses(app.server);
  // HTTP/1.1 servers never emit sessions or streams.
  tendSessions(app.server as unknown as Http2SecureServer);
  limitStreams(app.server as unknown as Http2SecureServer, options.connections.isTrusted, open.block);
  app.addHook("onResponse", async (request, reply) => {
    const { method, routeOptions } = request;
    // Logs the route instead of the URL, because a query may contain confidential values.
    const fields = {
      method,
      route: routeOptions.url,
      status: reply.statusCode,
      ms: Math.round(reply.elapsedTime),
    };
    context.log.debug(fields, "request");
    const attributes = httpAttributes(method, routeOptions.url, reply.statusCode);
    context.instruments.httpDuration.record(reply.elapsedTime / 1_000, attributes);
  });
  limitHttp2Bodies(app, context.limits.requestIdleMs);
  const whatElse: WhatElse = services
    ? {
        paths: ({ raw, url, method }) => {
          const base = services.basePath(raw);
          const [, path, id] = /^(\/api\/(?:v\d+\/)?webhook)\/(\d+)\/?(?:\?|$)/.exec(url) ?? [];
          const instead =
            method === "DELETE" ? `DELETE ${base}${path}?webhookId=${id}` : `GET ${base}${path}/list`;
          return `${id === undefined ? "" : `use ${instead}; `}all paths: ${base}${OPENAPI_PATH}`;
        },
        methods: LISTED_BY_REFLECTION,
      }
    : ONLY_DELIVERS;
  mountFailures(app, context, whatElse, (request, reply) =>
    services ? answerLostBrowser(request, reply, services) : Promise.resolve(undefined),
  );
  app.addHook("onRoute", ({ url }) => prefix?.addRoute(url));
  mountProbes(app, options.readiness);
  if (services) {
    await app.register(async (scope) => {
      await compressAnswers(scope);
      mountDocs(scope, context.deliveryTimeoutMs, services);
      await scope.register((events) => mountEventPages(events, services));
      await scope.register((rest) => mountRestGateway(rest, services));
    });
    await app.register(async (scope) => mountSettingsPage(scope, services));
    await app.register((scope) => mountConnect(scope, services.handlers));
  }
  try {
    await app.listen({ host: options.host, port: options.port });
  } catch (error) {
    await app.close();
    throw listenError(error, options.port, "HTTP_PORT");
  }

  return {
    port: (app.server.address() as AddressInfo).port,
    turnAway() {
      app.server.prependListener("request", (request: IncomingMessage, response: ServerResponse) => {
        // HTTP/2 has no such header; its sessions end with a GOAWAY frame when the listener closes.
        if (request.httpVersionMajor === 1) response.shouldKeepAlive = false;
      });
    },
    setCertificate: ({ cert, key }) =>
      (app.server as unknown as Http2SecureServer).setSecureContext({ ...TLS_POLICY, cert, key }),
    async close() {
      // Closes connections that become idle from now on.
      app.server.keepAliveTimeout = 1;
      const reap = setInterval(() => app.server.closeIdleConnections?.(), 50);
      const force = setTimeout(open.closeAll, options.drainMs);
      await app.close();
      clearInterval(reap);
      clearTimeout(force);
    },
  };
}

function createApp(
  tls: TlsOptions | undefined,
  http2: Http2Limits,
  prefix: PrefixRemover | undefined,
): FastifyInstance {
  const options = {
    ...(prefix ? { rewriteUrl: (request: FastifyRequest["raw"]) => prefix.pathOf(request) } : {}),
    bodyLimit: MAX_BODY_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    routerOptions: { ignoreTrailingSlash: true },
    // Both would respond without the envelope.
    return503OnClosing: false,
    frameworkErrors: frameworkFailure,
    clientErrorHandler: answerMalformed,
  };
  // Node rejects a missing Host header without the envelope; nothing here requires the header.
  const http = { requireHostHeader: false, ...answerClasses(tls !== undefined) };
  if (!tls) return fastify({ ...options, http });
  // The framework's types distinguish HTTP/2 from HTTP/1.1, but the parts used here are the same.
  return fastify({
    ...options,
    http2: true,
    https: { ...http, ...http2Options(http2), ...tls, ...TLS_POLICY, allowHTTP1: true },
  } as never) as unknown as FastifyInstance;
}

function mountProbes(app: FastifyInstance, readiness: Readiness): void {
  app.get("/healthz", async () => ({ status: "alive" }));
  app.get("/readyz", async (_request, reply) => {
    const reasons = await readiness();
    return reply
      .code(reasons.length === 0 ? 200 : 503)
      .send(reasons.length === 0 ? { status: "ready" } : { status: "not ready", reasons });
  });
}

/** Serves Connect and gRPC-Web, and gRPC if TLS enables HTTP/2. */
async function mountConnect(app: FastifyInstance, handlers: HttpServices["handlers"]): Promise<void> {
  // The handlers reject HTTP methods and content types themselves, in the protocol of the call.
  for (const method of METHODS) {
    if (!app.supportedMethods.includes(method)) app.addHttpMethod(method, { hasBody: true });
  }
  for (const [path, handler] of handlers) {
    const onRequest = (request: FastifyRequest, reply: FastifyReply) => {
      for (const [name, value] of Object.entries(reply.getHeaders())) {
        if (value !== undefined) reply.raw.setHeader(name, value);
      }
      reply.hijack();
      handler(request.raw, reply.raw);
    };
    // Before the framework parses the content type: the handlers read bodies themselves.
    app.all(path, { onRequest }, () => {});
  }
}

/** Messages for errors of Node's HTTP parser. */
const MESSAGES: Record<string, string> = {
  HPE_HEADER_OVERFLOW: `the request line and headers have more than ${maxHeaderSize} bytes; shorten them`,
  HPE_INVALID_METHOD:
    "the request's method is unknown, or the request is not valid HTTP; use GET, HEAD, POST or DELETE",
  ERR_HTTP_REQUEST_TIMEOUT: "the request did not arrive in time",
};

/** Responds to invalid HTTP with the envelope, which Node would omit. */
export function answerMalformed(error: NodeJS.ErrnoException, socket: Socket): void {
  if (!socket.writable || error.code === "ECONNRESET") {
    socket.destroy();
    return;
  }
  const message = MESSAGES[error.code ?? ""] ?? "the request is not valid HTTP";
  socket.end(rawFailure(message, answerHeaderLines(socket)), () => socket.destroy());
}

/**
 * Responds with the envelope where Node itself would respond or close the connection before the framework sees the
 * request.
 */
export function answerWhatNodeRefuses(server: Server): void {
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    const body = failureEnvelope(`Expect: ${request.headers.expect} is not supported; leave the header out`);
    response.writeHead(400, STATUS_CODES[400], { "Content-Type": JSON_CONTENT_TYPE }).end(body);
  });
  server.on("connect", (_request: IncomingMessage, socket: Socket) => {
    socket.end(rawFailure("CONNECT is not supported", answerHeaderLines(socket)), () => socket.destroy());
  });
}
