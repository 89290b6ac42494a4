import type { IncomingMessage, ServerResponse } from "node:http";
import { constants, type Http2ServerRequest, type Http2ServerResponse } from "node:http2";
import {
  Code,
  ConnectError,
  type ConnectRouter,
  type ConnectRouterOptions,
  createConnectRouter,
} from "@connectrpc/connect";
import type {
  UniversalHandler,
  UniversalServerRequest,
  UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import { universalRequestFromNodeRequest, universalResponseToNodeResponse } from "@connectrpc/connect-node";
import type { Logger } from "pino";
import { DomainError } from "../../contract/errors.ts";
import type { AddressReader, AddressValues } from "../auth/client-address.ts";
import { isPublic } from "../auth/public-services.ts";
import { closeStream, sendError } from "../errors/unknown-method.ts";
import { type AddressCounter, tooManyPublicCalls } from "../limits/address-counter.ts";
import type { HeldBytes, HeldCall } from "../limits/held-bytes.ts";
import { withBoundedBody } from "../limits/request-messages.ts";

type NodeRequest = IncomingMessage | Http2ServerRequest;
type NodeResponse = ServerResponse | Http2ServerResponse;

/** Answers one call of gRPC, gRPC-Web or Connect. Never throws. */
export type RpcHandler = (request: NodeRequest, response: NodeResponse) => void;

/** What the handlers of all listeners share. */
export interface RpcHandlerOptions {
  routes: (router: ConnectRouter) => void;
  routerOptions: ConnectRouterOptions;
  /** Tells the gate where a request comes from. */
  contextValues: AddressValues;
  /** Where a request comes from, as text. */
  readAddress: AddressReader;
  /** Counts the bytes of request messages. */
  heldBytes: HeldBytes;
  /** Counts the calls that need no key. */
  publicCalls: AddressCounter;
  /** How long a client may send nothing while the service waits for a message, in milliseconds. */
  idleMs: number;
  log: Logger;
}

/** A handler for each method's path, such as `/webhook.v1.WebhookService/ListWebhooks`. */
export function createRpcHandlers(options: RpcHandlerOptions): ReadonlyMap<string, RpcHandler> {
  const router = createConnectRouter(options.routerOptions);
  options.routes(router);
  return new Map(router.handlers.map((handler) => [handler.requestPath, rpcHandler(handler, options)]));
}

function rpcHandler(handler: UniversalHandler, options: RpcHandlerOptions): RpcHandler {
  const { contextValues, readAddress, heldBytes, publicCalls, idleMs, log } = options;
  const { method } = handler;

  async function answer(request: NodeRequest, response: NodeResponse, call: HeldCall): Promise<void> {
    const asked = withBoundedBody(universalRequest(request, response, contextValues), method, call, idleMs);
    const answered = await handler(asked);
    if (request.method === "HEAD") {
      writeHead(answered, response);
      return;
    }
    // The library's type knows HTTP/1.1 alone; it writes both.
    await universalResponseToNodeResponse(answered, response as ServerResponse);
  }

  return (request, response) => {
    if (response.destroyed) return;
    const leave = isPublic(method) ? publicCalls.enter(readAddress(request)) : () => {};
    if (!leave) {
      sendError(request, response, tooManyPublicCalls());
      return;
    }
    const call = heldBytes.open();
    // Not when the answer is written: the library does not say when, and the connection may be lost before.
    response.once("close", () => {
      call.close();
      leave();
    });
    answer(request, response, call).catch((error: unknown) => {
      if (error instanceof DomainError) {
        sendError(request, response, error);
        return;
      }
      // The client cancelled the call, or the connection was lost.
      const isGone = ConnectError.from(error).code === Code.Aborted || response.destroyed;
      if (!isGone) log.error({ err: error, method: method.name }, "could not answer a call");
      resetUnanswered(response);
    });
  };
}

function universalRequest(
  request: NodeRequest,
  response: NodeResponse,
  contextValues: AddressValues,
): UniversalServerRequest {
  try {
    return universalRequestFromNodeRequest(
      request,
      response as ServerResponse,
      undefined,
      contextValues(request),
    );
  } catch {
    // The library builds a URL from the Host header, and from nothing else that a parser of HTTP lets through.
    throw new DomainError(
      "INVALID_ARGUMENT",
      "the Host header (in HTTP/2, :authority) is not a valid host; send the host and port of the service",
    );
  }
}

/** Answers HEAD. The library would write the body even so, which fails over HTTP/2. */
function writeHead({ status, header }: UniversalServerResponse, response: NodeResponse): void {
  response.statusCode = status;
  for (const [name, value] of header ?? []) response.setHeader(name, value);
  response.end();
  if ("stream" in response) closeStream(response);
}

/** Ends a call whose answer could not be written: a client would wait for it for ever. */
function resetUnanswered(response: NodeResponse): void {
  if ("stream" in response) response.stream?.close(constants.NGHTTP2_INTERNAL_ERROR);
  else response.destroy();
}
