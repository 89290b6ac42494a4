import { constants } from "node:http2";
import type { ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { hideSecrets, refusal } from "../../calls/errors/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { spelt } from "./unary-grpc.ts";

/** Matches a content type of gRPC or gRPC-Web, ignoring the encoding. */
const GRPC_TYPE = /^application\/grpc(?:-web)?(?=[+;]|$)/i;
/** Matches paths such as `/webhook.v1.WebhookService/ListWebhooks`. Every package name contains a dot. */
const METHOD_PATH = /^\/\w+(?:\.\w+)+\/\w+$/;

/** Tells callers how to list the methods. */
export const LISTED_BY_REFLECTION = "list the services by reflection";

/** The parts of a request that identify its target. */
export interface AskedFor {
  contentType: string | undefined;
  /** The path without the query. */
  path: string;
}

/** The common parts of Node's HTTP/1.1 and HTTP/2 responses. */
interface NodeAnswer {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(): unknown;
  end(body: Uint8Array): unknown;
  /** HTTP/2 only. */
  stream?: { close(code: number): void };
}

/** Whether a request looks like a call of a method, existing or not, in gRPC, gRPC-Web or Connect. */
export function isMethodCall({ contentType, path }: AskedFor): boolean {
  return GRPC_TYPE.test(contentType ?? "") || METHOD_PATH.test(path);
}

/**
 * Sends UNIMPLEMENTED in the protocol of the call. gRPC clients expect a gRPC status and cannot interpret HTTP
 * errors; Connect clients read JSON.
 *
 * @param whatElse tells the caller how to list the methods
 */
export function answerUnknownMethod(
  { contentType, path }: AskedFor,
  response: NodeAnswer,
  whatElse: string,
): void {
  const error = refusal(
    new DomainError("METHOD_NOT_SERVED", `no such method: ${shortPath(path)}; ${whatElse}`),
  );
  writeError(contentType, response, error, 404);
}

/** Sends an error before any handler has run, in the protocol of the call. */
export function sendError(
  request: { headers: { "content-type"?: string | undefined } },
  response: NodeAnswer,
  error: DomainError,
): void {
  const told = refusal(error);
  writeError(request.headers["content-type"], response, told, codeToHttpStatus(told.code));
}

function writeError(
  contentType: string | undefined,
  response: NodeAnswer,
  error: ConnectError,
  httpStatus: number,
): void {
  const [grpcType] = GRPC_TYPE.exec(contentType ?? "") ?? [];
  if (grpcType === undefined) {
    response.statusCode = httpStatus;
    for (const [name, value] of error.metadata) response.setHeader(name, value);
    response.setHeader("content-type", "application/json");
    response.end(errorToJsonBytes(error, undefined));
    return;
  }
  const status = spelt(setTrailerStatus(new Headers({ "content-type": grpcType.toLowerCase() }), error));
  // Not with writeHead: gRPC requires that the headers frame with the status also ends the stream.
  for (const [name, value] of status) response.setHeader(name, value);
  response.end();
  closeStream(response);
}

/**
 * Closes the stream of a response that ended without a body. Node leaves it open while the client has more to send
 * than the stream's window allows, and a connection has a limited number of streams. Headers are sent at the end of this turn of the
 * event loop: a stream closed before, from Node 26 on, ends without them.
 */
export function closeStream({ stream }: Pick<NodeAnswer, "stream">): void {
  setImmediate(() => stream?.close(constants.NGHTTP2_NO_ERROR));
}

/** Truncates a path for error messages, and hides the secrets in it. */
export function shortPath(path: string): string {
  const shown = hideSecrets(path);
  return shown.length > 100 ? `${shown.slice(0, 100)}…` : shown;
}
