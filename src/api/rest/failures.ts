import { Code, ConnectError } from "@connectrpc/connect";
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { ApiContext } from "../context.ts";
import { toConnectError } from "../errors.ts";
import { answerUnknownMethod, isMethodCall, shortPath } from "../unknown-method.ts";
import { MAX_BODY_BYTES, UNSUPPORTED_TYPE } from "./bodies.ts";
import { failureEnvelope, JSON_CONTENT_TYPE, statusOf } from "./envelope.ts";

/** What the framework's own errors mean to callers. */
const FRAMEWORK_MESSAGES: Record<string, string> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: UNSUPPORTED_TYPE,
  FST_ERR_CTP_BODY_TOO_LARGE: `the body is too large; send at most ${MAX_BODY_BYTES} bytes`,
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: "the body is not as long as Content-Length says",
  FST_ERR_BAD_URL: "the path is not validly percent-encoded",
};

/** Sends a failure in the envelope. */
export function sendFailure(reply: FastifyReply, status: number, message: string): FastifyReply {
  // The framework sets it after a body that it cannot read. HTTP/2 has no such header: Node would drop it, and warn on stderr.
  if (reply.request.raw.httpVersionMajor > 1) reply.removeHeader("connection");
  return reply.code(status).type(JSON_CONTENT_TYPE).send(failureEnvelope(message));
}

/** Told to callers of what is not served: where to find what is. */
export interface WhatElse {
  paths: string;
  methods: string;
}

/**
 * Sees to it that no failure leaves without the envelope, whether a service, the framework or a path is the reason;
 * but for calls of unknown methods, which are answered in their own protocol.
 *
 * @param answerLost may answer who asks for an unknown path in a way of its own
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
      return answered ?? sendFailure(reply, 404, `unknown path ${shortPath(path)}; ${whatElse.paths}`);
    }
    const names = [...methods].join(", ");
    reply.header("Allow", names);
    return sendFailure(reply, 400, `${path} does not take ${request.method}; use ${names}`);
  }
  app.setNotFoundHandler(notFound);

  app.setErrorHandler(async (error: FastifyError, request, reply) => {
    // The connection was lost before the body arrived. Nobody reads an answer.
    if (error.code === "ECONNRESET" && !request.raw.complete) {
      return sendFailure(reply, 400, "the request did not arrive whole");
    }
    // The body of a request to nowhere was looked at first; where it went matters more.
    if (request.is404) return notFound(request, reply);
    const told = fromFramework(error) ?? toConnectError(error, context.log, request.routeOptions.url ?? "?");
    const retryAfter = told.metadata.get("Retry-After");
    if (retryAfter !== null) reply.header("Retry-After", retryAfter);
    return sendFailure(reply, statusOf(told.code), told.rawMessage);
  });
}

/** For errors before a route was found. */
export function frameworkFailure(error: FastifyError, _request: FastifyRequest, reply: FastifyReply): void {
  sendFailure(reply, 400, FRAMEWORK_MESSAGES[error.code] ?? error.message);
}

function fromFramework(error: FastifyError): ConnectError | undefined {
  const ours = typeof error.code !== "string" || !error.code.startsWith("FST_");
  if (ours || (error.statusCode ?? 500) >= 500) return undefined;
  return new ConnectError(FRAMEWORK_MESSAGES[error.code] ?? error.message, Code.InvalidArgument);
}
