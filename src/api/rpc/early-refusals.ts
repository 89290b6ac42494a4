import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import {
  createAsyncIterable,
  readAllBytes,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import { codeToHttpStatus, errorFromJsonBytes, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { isTooLarge, type OnRefused, refusal, withReason } from "../../calls/errors/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { callableByGet } from "../../contract/secret-fields.ts";
import { decompress } from "../limits/decompress.ts";
import { spelt } from "./unary-grpc.ts";

/** The size limit for parsing errors, in bytes. Larger than any error of the library. */
const MAX_ERROR_BYTES = 1_048_576;
/** The maximum duration of Node's timers, in milliseconds. Longer ones fire immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;
/** The maximum length of a content type repeated in an error, in characters. */
const MAX_SHOWN_TYPE = 50;
/** The HTTP status of a message that is too large. Connect's for its code is 429, after which clients send the message again. */
const TOO_LARGE = 413;
const CONTENT_TYPES = "application/json, application/proto, application/grpc-web+proto, application/grpc";

/**
 * Adds error details to errors that the library creates before any interceptor, and a body to those that it sends with a status
 * only. Calls of unary methods by gRPC and gRPC-Web have theirs, and errors of streams pass the interceptors.
 *
 * Must be called after all services are registered.
 */
export function explainEarlyRefusals(router: ConnectRouter, onRefused: OnRefused): void {
  for (const [place, handler] of router.handlers.entries()) {
    const { method } = handler;
    const explaining: UniversalHandler = Object.assign(async (request: UniversalServerRequest) => {
      forgetEndlessTimeout(request.header);
      if (request.method === "GET" && !callableByGet(method))
        return inWords({ status: 405 }, method, request);
      const response = await handler(request);
      const { status, header, body, trailer } = response;
      if (status >= 400 && !body) return inWords(response, method, request);
      if (trailer && body && method.methodKind !== "unary")
        return { ...response, body: thenSpelt(body, trailer) };
      const isJson = header?.get("Content-Type") === "application/json";
      return isJson && status >= 400 ? explainedJson(response, method, onRefused) : response;
    }, handler);
    router.handlers[place] = explaining;
  }
}

/** The trailers of a stream come after its body. */
async function* thenSpelt(body: AsyncIterable<Uint8Array>, trailer: Headers): AsyncIterable<Uint8Array> {
  yield* body;
  spelt(trailer);
}

async function explainedJson(
  response: UniversalServerResponse,
  { input }: DescMethod,
  onRefused: OnRefused,
): Promise<UniversalServerResponse> {
  const { body, header } = response;
  if (!body || !header) return response;
  const bytes = await readAllBytes(body, MAX_ERROR_BYTES);
  // The library compresses large errors.
  const encoding = header.get("Content-Encoding");
  const json = encoding === null ? bytes : await decompress(encoding, bytes, MAX_ERROR_BYTES);
  const error = errorFromJsonBytes(json, undefined, new ConnectError("", Code.Unknown));
  if (error.details.length > 0) {
    const status = isTooLarge(error) ? TOO_LARGE : response.status;
    return { ...response, status, body: createAsyncIterable([bytes]) };
  }
  const told = withReason(error, input);
  onRefused(told);
  // The library's status corresponds to its own code, which may have been corrected.
  return inJson(told, isTooLarge(told) ? TOO_LARGE : codeToHttpStatus(told.code), header);
}

function inJson(error: ConnectError, status: number, header: Headers): UniversalServerResponse {
  const body = errorToJsonBytes(error, undefined);
  header.delete("Content-Encoding");
  header.set("Content-Type", "application/json");
  header.set("Content-Length", String(body.byteLength));
  return { status, header, body: createAsyncIterable([body]) };
}

/** The error for an unsupported HTTP method, content type or HTTP version. */
function inWords(
  response: UniversalServerResponse,
  method: DescMethod,
  request: UniversalServerRequest,
): UniversalServerResponse {
  const { status } = response;
  const header = new Headers(response.header);
  const byGet = callableByGet(method);
  const told = (words: string, as = status) =>
    inJson(refusal(new DomainError("METHOD_NOT_SERVED", `${method.name} ${words}`)), as, header);
  if (status === 405) {
    header.set("Allow", byGet ? "GET, POST" : "POST");
    return told("is called by POST");
  }
  // The library's 505 would mean that the service does not support this HTTP version at all.
  if (status === 505) return told("streams both ways, which HTTP/1.1 cannot: call it over HTTP/2", 426);
  if (status !== 415) return response;
  header.set("Accept-Post", CONTENT_TYPES);
  const type = request.header.get("Content-Type");
  const given = type
    ? `the Content-Type ${JSON.stringify(type.slice(0, MAX_SHOWN_TYPE))}`
    : "a body without a Content-Type";
  const unread = request.method === "POST" ? `cannot read ${given}: send JSON by POST` : "is called by POST";
  const get = byGet ? "; or by GET with connect=v1, encoding=json and message={} in the query" : "";
  return told(
    `${unread} with Content-Type: application/json; Content-Type is one of: ${CONTENT_TYPES}${get}`,
  );
}

const TIMEOUT_UNITS_MS: Record<string, number> = { H: 3_600_000, M: 60_000, S: 1_000 };

/** Removes a deadline that exceeds the maximum timer. */
function forgetEndlessTimeout(header: Headers): void {
  const [, amount, unit = ""] = /^(\d{1,8})([HMS])$/.exec(header.get("grpc-timeout") ?? "") ?? [];
  if (Number(amount) * (TIMEOUT_UNITS_MS[unit] ?? 0) > MAX_TIMER_MS) header.delete("grpc-timeout");
  if (Number(header.get("connect-timeout-ms")) > MAX_TIMER_MS) header.delete("connect-timeout-ms");
}
