import { constants } from "node:http2";
import type { ConnectError } from "@connectrpc/connect";
import { codeToHttpStatus, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { DomainError } from "../../contract/errors.ts";
import { grpcSpelling } from "./early-refusals.ts";
import { refusal } from "./errors.ts";
import { nearestMethod } from "./nearest-path.ts";

/** A content type of gRPC or gRPC-Web, without what it says of the encoding. */
const GRPC_TYPE = /^application\/grpc(?:-web)?(?=[+;]|$)/i;
/** `/webhook.v1.WebhookService/ListWebhooks`; every package has a dot. */
const METHOD_PATH = /^\/\w+(?:\.\w+)+\/\w+$/;

/** Where callers find the methods there are. */
export const LISTED_BY_REFLECTION = "list the services by reflection";

/** A request, as far as it tells what it is meant for. */
export interface AskedFor {
  contentType: string | undefined;
  /** Without the query. */
  path: string;
}

/** Node's answers of HTTP/1.1 and HTTP/2, as far as they are alike. */
interface NodeAnswer {
  statusCode: number;
  setHeader(name: string, value: string): unknown;
  end(): unknown;
  end(body: Uint8Array): unknown;
  /** Of HTTP/2. */
  stream?: { close(code: number): void };
}

/** Whether a request is meant to be a call of a service's method, there or not, in gRPC, gRPC-Web or Connect. */
export function isMethodCall({ contentType, path }: AskedFor): boolean {
  return GRPC_TYPE.test(contentType ?? "") || METHOD_PATH.test(path);
}

/**
 * Answers UNIMPLEMENTED in the words of the protocol of the call. Clients of gRPC expect a status of gRPC and show what
 * HTTP says as a riddle; those of Connect read the error from JSON.
 *
 * @param whatElse.methods told to the caller: where to find what there is
 * @param whatElse.callable the paths of the methods, of which the nearest is named
 */
export function answerUnknownMethod(
  { contentType, path }: AskedFor,
  response: NodeAnswer,
  whatElse: { methods: string; callable: readonly string[] },
): void {
  const near = nearestMethod(path, whatElse.callable);
  const told =
    near === undefined ? whatElse.methods : `${near}${near.endsWith("?") ? "" : ";"} ${whatElse.methods}`;
  const error = refusal(new DomainError("UNIMPLEMENTED", `there is no method ${shortPath(path)}; ${told}`));
  writeError(contentType, response, error, 404);
}

/** Answers a call with an error before any handler has seen it, in the protocol of the call. */
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
  const status = setTrailerStatus(new Headers({ "content-type": grpcType.toLowerCase() }), error);
  status.set("grpc-message", grpcSpelling(status.get("grpc-message") ?? ""));
  // Not by writeHead: the frame of the headers must itself end the stream, or it holds no status in gRPC's eyes.
  for (const [name, value] of status) response.setHeader(name, value);
  response.end();
  closeStream(response);
}

/**
 * Closes the stream of an answer that has ended without a body. Node leaves it open while the client has more to send than
 * the stream's window takes, and a connection has a limited number of streams.
 */
export function closeStream({ stream }: Pick<NodeAnswer, "stream">): void {
  stream?.close(constants.NGHTTP2_NO_ERROR);
}

/** Enough of a path to know it again. */
export function shortPath(path: string): string {
  return path.length > 100 ? `${path.slice(0, 100)}…` : path;
}
