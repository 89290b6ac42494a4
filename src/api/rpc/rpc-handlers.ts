import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import type { TLSSocket } from "node:tls";
import { base64Decode } from "@bufbuild/protobuf/wire";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ConnectRouterOptions,
  type ContextValues,
  createConnectRouter,
} from "@connectrpc/connect";
import type {
  UniversalHandler,
  UniversalServerRequest,
  UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import { universalResponseToNodeResponse } from "@connectrpc/connect-node";
import type { Logger } from "pino";
import type { OnRefused } from "../../calls/errors/index.ts";
import { type AddressValues, callerIn, longTurn } from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { callableByGet } from "../../contract/secret-fields.ts";
import { isPublic } from "../../keys/gate/index.ts";
import type { HeldBytes, HeldCall, KeyShares } from "../limits/held-bytes.ts";
import { isHuge } from "../limits/message-limits.ts";
import { type BodyLimits, withBoundedBody } from "../limits/request-messages.ts";
import { explainEarlyRefusals } from "./early-refusals.ts";
import { withUnaryGrpc } from "./unary-grpc.ts";
import { closeStream, sendError } from "./unknown-method.ts";

type NodeRequest = IncomingMessage | Http2ServerRequest;
type NodeResponse = ServerResponse | Http2ServerResponse;

/** The reason for ending calls whose client has disconnected. Shared, because each error would capture its stack. */
const CLOSED = new ConnectError("the client closed the connection or cancelled the call", Code.Canceled);

const ENDED: IteratorReturnResult<undefined> = { done: true, value: undefined };

/** Handles one call of gRPC, gRPC-Web or Connect. Never throws. */
export type RpcHandler = (request: NodeRequest, response: NodeResponse) => void;

/** Shared parts of all handlers. */
export interface RpcHandlerOptions {
  routes: (router: ConnectRouter) => void;
  routerOptions: ConnectRouterOptions;
  /** Creates the context values of a request for the gate. */
  contextValues: AddressValues;
  /** Counts the bytes of request messages, of methods that need a key. */
  heldBytes: HeldBytes;
  /** The same for methods that need no key. */
  publicHeldBytes: HeldBytes;
  /** The same for methods with messages that `heldBytes` has no room for. */
  hugeHeldBytes: HeldBytes;
  /** Limits what each key holds of `heldBytes`. */
  keyShares: KeyShares;
  /** Called for calls whose message is refused before any interceptor. */
  onRefused: OnRefused;
  /** As in `BodyLimits`. */
  idleMs: number;
  log: Logger;
}

/**
 * A handler for each method's path, such as `/webhook.v1.WebhookService/ListWebhooks`.
 *
 * Not `@connectrpc/connect-fastify`: with the library's conversion of requests and its handler of unary gRPC calls, bench `publish`
 * stores 0.69 of the events per second (2,843 instead of 4,135), and streams 1.07.
 */
export function createRpcHandlers(options: RpcHandlerOptions): ReadonlyMap<string, RpcHandler> {
  const { routes, routerOptions, onRefused } = options;
  const router = createConnectRouter(routerOptions);
  routes(withUnaryGrpc(router, routerOptions, onRefused));
  explainEarlyRefusals(router, onRefused);
  return new Map(router.handlers.map((handler) => [handler.requestPath, rpcHandler(handler, options)]));
}

function rpcHandler(handler: UniversalHandler, options: RpcHandlerOptions): RpcHandler {
  const { contextValues, keyShares, onRefused, idleMs, log } = options;
  const { method } = handler;
  const heldBytes = isPublic(method)
    ? options.publicHeldBytes
    : isHuge(method)
      ? options.hugeHeldBytes
      : options.heldBytes;
  const byGet = method.methodKind === "unary" && callableByGet(method);

  async function answer(
    request: NodeRequest,
    response: NodeResponse,
    call: HeldCall,
    signal: AbortSignal,
  ): Promise<void> {
    const values = contextValues(request);
    let hasShare = false;
    const read: BodyLimits = {
      call,
      idleMs,
      holds() {
        // The key is known by the time that the body is read.
        const key = hasShare || heldBytes !== options.heldBytes ? null : callerIn(values);
        if (key) call.within(keyShares.open(key.id));
        hasShare = true;
      },
      turn: () => longTurn(callerIn(values)?.id ?? ""),
      onRefused,
    };
    const sent = universalRequest(request, signal, values);
    const answered = await handler(withBoundedBody(byGet ? byPost(sent) : sent, method, read));
    if (request.method === "HEAD") {
      writeHead(answered, response);
      return;
    }
    // The library's type names HTTP/1.1, but it supports both.
    const told = method.methodKind === "server_streaming" ? cancelledByWriting(answered) : answered;
    await universalResponseToNodeResponse(told, response as ServerResponse);
  }

  return (request, response) => {
    if (response.destroyed) return;
    const call = heldBytes.open();
    const gone = new AbortController();
    // Not when the response is written: the library does not report it, and the connection may be lost before.
    response.once("close", () => {
      call.close();
      gone.abort(CLOSED);
    });
    answer(request, response, call, gone.signal).catch((error: unknown) => {
      if (error instanceof DomainError) {
        sendError(request, response, error);
        return;
      }
      // The client cancelled the call, or the connection was lost.
      const isGone = ConnectError.from(error).code === Code.Aborted || response.destroyed;
      if (!isGone) log.error({ err: error, method: method.name }, "responding to a call failed");
      resetUnanswered(response);
    });
  };
}

/**
 * The response, whose stream is told that the client has cancelled the call if a message cannot be written. The library would pass on
 * Node's error, which is logged as an internal error.
 */
function cancelledByWriting(answered: UniversalServerResponse): UniversalServerResponse {
  const messages = answered.body?.[Symbol.asyncIterator]();
  if (!messages) return answered;
  const body: AsyncIterator<Uint8Array> = {
    next: () => messages.next(),
    return: async () => (await messages.return?.()) ?? ENDED,
    throw: async () => (await messages.throw?.(CLOSED)) ?? ENDED,
  };
  return { ...answered, body: { [Symbol.asyncIterator]: () => body } };
}

/**
 * The request as the library takes it. The library's own conversion wraps the body in another generator, and
 * creates an exception with a stack for each call that has ended.
 */
function universalRequest(
  request: NodeRequest,
  signal: AbortSignal,
  contextValues: ContextValues,
): UniversalServerRequest {
  const { httpVersion, method = "", url = "", headers } = request;
  const isEncrypted = (request.socket as Partial<TLSSocket>).encrypted === true;
  const authority = "authority" in request ? request.authority : headers.host;
  return {
    httpVersion,
    method,
    url: urlOf(`${isEncrypted ? "https" : "http"}://${authority}`, url),
    header: webHeaders(headers),
    body: request,
    signal,
    contextValues,
  };
}

function urlOf(origin: string, path: string): string {
  const url = URL.parse(path, origin);
  if (url) return url.href;
  // The only part of a request that an HTTP parser does not validate.
  throw new DomainError(
    "REQUEST_INVALID",
    "the Host header (in HTTP/2, :authority) is not a valid host; send the host and port of the service",
  );
}

/** Other spellings of the two media types of Connect: with parameters beside UTF-8, which the library refuses, and other names. */
const JSON_SPELLING = /^(?:application|text)\/json\s*(?:;|$)/i;
const OTHER_CHARSET = /charset=(?!"?utf-?8"?\s*(?:;|$))/i;
const PROTO_SPELLING = /^application\/(?:x-protobuf|protobuf|vnd\.google\.protobuf)\b/i;

function mediaType(given: string): string {
  if (JSON_SPELLING.test(given) && !OTHER_CHARSET.test(given)) return "application/json";
  return PROTO_SPELLING.test(given) ? "application/proto" : given;
}

/** The headers, without the pseudo-headers of HTTP/2, such as `:path`. */
function webHeaders(headers: IncomingHttpHeaders): Headers {
  const all = new Headers();
  if (headers["content-type"] !== undefined) all.set("content-type", mediaType(headers["content-type"]));
  for (const [name, value] of Object.entries(headers)) {
    if (value === undefined || name.startsWith(":") || name === "content-type") continue;
    for (const each of Array.isArray(value) ? value : [value]) all.append(name, each);
  }
  return all;
}

/**
 * A call by GET as the same call by POST, so that its message is read alike. The library reports a query without valid base64 as an
 * internal error, and one with an unknown compression as an unknown method.
 */
function byPost(request: UniversalServerRequest): UniversalServerRequest {
  const query = new URL(request.url).searchParams;
  const encoding = query.get("encoding");
  if (request.method !== "GET" || (encoding !== "json" && encoding !== "proto")) return request;
  request.header.set("Content-Type", `application/${encoding}`);
  request.header.set("Content-Encoding", encodeURIComponent(query.get("compression") ?? ""));
  return { ...request, method: "POST", body: messageIn(query) };
}

async function* messageIn(query: URLSearchParams): AsyncIterable<Uint8Array> {
  const message = query.get("message") ?? "";
  try {
    yield query.get("base64") === "1" ? base64Decode(message) : Buffer.from(message);
  } catch {
    const problem =
      "message in the query is not valid base64; send it as base64url, or as JSON without base64=1";
    throw new DomainError("REQUEST_INVALID", problem);
  }
}

/** Responds to HEAD. The library would send a body, which fails over HTTP/2. */
function writeHead({ status, header }: UniversalServerResponse, response: NodeResponse): void {
  response.statusCode = status;
  for (const [name, value] of header ?? []) response.setHeader(name, value);
  response.end();
  if ("stream" in response) closeStream(response);
}

/** Ends a call whose response could not be written, because the client would wait forever. */
function resetUnanswered(response: NodeResponse): void {
  if ("stream" in response) response.stream?.close(constants.NGHTTP2_INTERNAL_ERROR);
  else response.destroy();
}
