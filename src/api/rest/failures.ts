import { Code, ConnectError } from "@connectrpc/connect";
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { reasonOf, refusal, toConnectError, withReason } from "../../calls/errors/index.ts";
import { DomainError } from "../../contract/errors.ts";
import type { ApiContext } from "../context/context.ts";
import { answerUnknownMethod, isMethodCall, shortPath } from "../rpc/unknown-method.ts";
import { MAX_BODY_BYTES, unsupportedType } from "./bodies.ts";
import { failureEnvelope, JSON_CONTENT_TYPE, statusOf } from "./envelope.ts";

/** The framework's error for a body above the limit. */
const TOO_LARGE = "FST_ERR_CTP_BODY_TOO_LARGE";
/** Messages for errors of the framework. */
const FRAMEWORK_MESSAGES: Record<string, string> = {
  [TOO_LARGE]: `the body is too large; send at most ${MAX_BODY_BYTES} bytes`,
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: "the body is not as long as Content-Length says",
  FST_ERR_BAD_URL: "the path is not validly percent-encoded; write % as %25",
};

/** Sends a failure in the envelope. */
export function sendFailure(reply: FastifyReply, status: number, message: string): FastifyReply {
  // The framework sets this header after an unreadable body. HTTP/2 has no such header: Node would drop it and warn
  // on stderr.
  if (reply.request.raw.httpVersionMajor > 1) reply.removeHeader("connection");
  return reply.code(status).type(JSON_CONTENT_TYPE).send(failureEnvelope(message));
}

/** Hints in errors for unknown paths and methods. */
export interface WhatElse {
  paths: (request: FastifyRequest) => string;
  methods: string;
}

/**
 * Ensures that every failure has the envelope, whether a service, the framework or an unknown path causes it. Calls
 * of unknown methods get an error in their own protocol instead.
 *
 * @param answerLost may respond to requests for unknown paths in another way
 */
export function mountFailures(
  app: FastifyInstance,
  context: ApiContext,
  whatElse: WhatElse,
  answerLost?: (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply | undefined>,
): void {
  const allowed = new Map<string, Set<string>>();
  app.addHook("onRoute", ({ method, url }) => {
    const methods = allowed.get(url) ?? new Set();
    for (const each of [method].flat()) methods.add(each);
    allowed.set(url, methods);
  });

  async function notFound(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    const path = (request.url.split("?", 1)[0] as string).replace(/(?<=.)\/$/, "");
    const methods = allowed.get(path);
    const asked = { contentType: request.headers["content-type"], path };
    if (!methods && isMethodCall(asked)) {
      reply.hijack();
      answerUnknownMethod(asked, reply.raw, whatElse.methods);
      return reply;
    }
    if (!methods) {
      const answered = await answerLost?.(request, reply);
      if (answered) return answered;
      return sendFailure(reply, 404, `no such path: ${shortPath(path)}; ${whatElse.paths(request)}`);
    }
    const names = [...methods].join(", ");
    reply.header("Allow", names);
    return sendFailure(reply, 400, `${path} does not take ${request.method}; use ${names}`);
  }
  app.setNotFoundHandler(notFound);

  app.setErrorHandler(async (error: FastifyError, request, reply) => {
    // The connection was closed before the body arrived, so nobody reads the response.
    if (error.code === "ECONNRESET" && !request.raw.complete) {
      return sendFailure(reply, 400, "the request did not arrive whole");
    }
    // The framework parses the body of a request to an unknown path first, but the path is the more important error.
    if (request.is404) return notFound(request, reply);
    const told =
      fromFramework(error, request) ?? toConnectError(error, context.log, request.routeOptions.url ?? "?");
    context.instruments.refusals.add(1, { reason: reasonOf(told) });
    const retryAfter = told.metadata.get("Retry-After");
    if (retryAfter !== null) reply.header("Retry-After", retryAfter);
    return sendFailure(reply, statusOf(told), told.rawMessage);
  });
}

/** Handles errors that occur before routing. */
export function frameworkFailure(error: FastifyError, _request: FastifyRequest, reply: FastifyReply): void {
  sendFailure(reply, 400, FRAMEWORK_MESSAGES[error.code] ?? error.message);
}

function fromFramework(error: FastifyError, { headers }: FastifyRequest): ConnectError | undefined {
  const ours = typeof error.code !== "string" || !error.code.startsWith("FST_");
  if (ours || (error.statusCode ?? 500) >= 500) return undefined;
  const message =
    error.code === "FST_ERR_CTP_INVALID_MEDIA_TYPE"
      ? unsupportedType(headers["content-type"])
      : FRAMEWORK_MESSAGES[error.code];
  if (error.code === TOO_LARGE)
    return refusal(new DomainError("MESSAGE_TOO_LARGE", message ?? error.message));
  return withReason(new ConnectError(message ?? error.message, Code.InvalidArgument));
}
