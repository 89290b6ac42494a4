import type { DescMethod } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import {
  createAsyncIterable,
  encodeEnvelope,
  readAllBytes,
  type UniversalHandler,
  type UniversalServerRequest,
  type UniversalServerResponse,
} from "@connectrpc/connect/protocol";
import { codeToHttpStatus, errorFromJsonBytes, errorToJsonBytes } from "@connectrpc/connect/protocol-connect";
import { findTrailerError, setTrailerStatus } from "@connectrpc/connect/protocol-grpc";
import { trailerFlag, trailerParse, trailerSerialize } from "@connectrpc/connect/protocol-grpc-web";
import { type OnRefused, refusal, withReason } from "../../calls/errors/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { callableByGet } from "../../contract/secret-fields.ts";
import { decompress, REQUEST_ENCODINGS } from "../limits/decompress.ts";
import { withWords } from "./bare-refusals.ts";

/** The size limit for parsing errors, in bytes. Larger than any error of the library. */
const MAX_ERROR_BYTES = 1_048_576;
/** The size of flags and length before the content of an envelope, in bytes. */
const ENVELOPE_HEAD_BYTES = 5;
/** The maximum duration of Node's timers, in milliseconds. Longer ones fire immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Adds error details to errors that the library creates before any interceptor: messages that are too large,
 * unreadable, or in an unknown encoding, and malformed calls. Also encodes all messages according to gRPC.
 *
 * Must be called after all services are registered.
 */
export function explainEarlyRefusals(router: ConnectRouter, onRefused: OnRefused): void {
  for (const [place, handler] of router.handlers.entries()) {
    const explaining: UniversalHandler = Object.assign(async (request: Parameters<UniversalHandler>[0]) => {
      forgetEndlessTimeout(request.header);
      if (request.method === "GET" && !callableByGet(handler.method))
        return withWords({ status: 405 }, handler.method);
      const refused = (error: ConnectError) => {
        onRefused(error);
        return error;
      };
      return explained(await handler(request), handler.method, request, refused);
    }, handler);
    router.handlers[place] = explaining;
  }
}

/** Handles an error that no interceptor has seen, and returns the one for the caller. */
type Refused = (error: ConnectError) => ConnectError;

function explained(
  response: UniversalServerResponse,
  method: DescMethod,
  request: UniversalServerRequest,
  refused: Refused,
): UniversalServerResponse | Promise<UniversalServerResponse> {
  const { trailer, body } = response;
  const { methodKind: kind } = method;
  if (response.status >= 400 && !body) {
    const type = request.method === "POST" ? request.header.get("Content-Type") : undefined;
    return withWords(response, method, type);
  }
  if (trailer) {
    // Of a call with one answer the outcome is known by now; only streams have theirs to come.
    if (kind === "unary" || kind === "client_streaming" || !body) explainTrailer(trailer, refused);
    else return { ...response, body: thenExplained(body, trailer, refused) };
    return response;
  }
  const type = response.header?.get("Content-Type") ?? "";
  if (type.startsWith("application/grpc-web") && response.body) {
    return { ...response, body: explainedEnvelopes(response.body, refused) };
  }
  if (type === "application/json" && response.status >= 400) return explainedJson(response, request, refused);
  return response;
}

async function* thenExplained(
  body: AsyncIterable<Uint8Array>,
  trailer: Headers,
  refused: Refused,
): AsyncIterable<Uint8Array> {
  yield* body;
  explainTrailer(trailer, refused);
}

function explainTrailer(trailer: Headers, refused: Refused): void {
  const status = trailer.get("grpc-status");
  if (status === null || status === "0") return;
  if (!trailer.has("grpc-status-details-bin")) {
    const error = findTrailerError(trailer);
    if (error) setTrailerStatus(trailer, refused(withReason(error)));
  }
  trailer.set("grpc-message", grpcSpelling(trailer.get("grpc-message") ?? ""));
}

/**
 * Removes excess percent-encoding by the library. gRPC encodes only non-printable ASCII and the percent sign, and
 * clients such as grpc-js decode only those.
 */
export function grpcSpelling(encoded: string): string {
  return decodeURIComponent(encoded).replace(/[^\x20-\x24\x26-\x7e]+/g, encodeURIComponent);
}

/** gRPC-Web has its trailers in the last envelope of the body; each chunk is one envelope. */
async function* explainedEnvelopes(
  body: AsyncIterable<Uint8Array>,
  refused: Refused,
): AsyncIterable<Uint8Array> {
  for await (const envelope of body) {
    if (envelope[0] !== trailerFlag) {
      yield envelope;
      continue;
    }
    const trailer = trailerParse(envelope.subarray(ENVELOPE_HEAD_BYTES));
    explainTrailer(trailer, refused);
    yield encodeEnvelope(trailerFlag, trailerSerialize(trailer) as Uint8Array<ArrayBuffer>);
  }
}

async function explainedJson(
  response: UniversalServerResponse,
  request: UniversalServerRequest,
  refused: Refused,
): Promise<UniversalServerResponse> {
  const { body, header } = response;
  if (!body || !header) return response;
  const bytes = await readAllBytes(body, MAX_ERROR_BYTES);
  // The library compresses large errors.
  const encoding = header.get("Content-Encoding");
  const json = encoding === null ? bytes : await decompress(encoding, bytes, MAX_ERROR_BYTES);
  const error = errorFromJsonBytes(json, undefined, new ConnectError("", Code.Unknown));
  if (error.details.length > 0) return { ...response, body: createAsyncIterable([bytes]) };
  const explainedError = refused(withReason(queryRefusal(error, request) ?? error));
  const told = errorToJsonBytes(explainedError, undefined);
  header.delete("Content-Encoding");
  header.set("Content-Length", String(told.byteLength));
  // The library's status corresponds to its own code, which may have been corrected.
  const status = codeToHttpStatus(explainedError.code);
  return { ...response, status, body: createAsyncIterable([told as Uint8Array<ArrayBuffer>]) };
}

/**
 * The error for a GET whose query the library cannot decode; undefined for other errors. The library reports invalid
 * base64 as an internal error, and an unknown encoding as an unknown method (HTTP 501).
 */
function queryRefusal(
  error: ConnectError,
  { method, url }: UniversalServerRequest,
): ConnectError | undefined {
  if (method !== "GET" || error.details.length > 0) return undefined;
  const query = new URL(url).searchParams;
  if (error.code === Code.Internal && query.get("base64") === "1" && !isBase64(query.get("message") ?? "")) {
    return invalidQuery(
      "message in the query is not valid base64; send it as base64url, or as JSON without base64=1",
    );
  }
  const compression = query.get("compression");
  if (error.code === Code.Unimplemented && compression !== null) {
    const name = JSON.stringify(compression.slice(0, 50));
    return invalidQuery(
      `message in the query cannot be compressed as ${name}; use ${REQUEST_ENCODINGS.join(" or ")}, or send it uncompressed`,
    );
  }
  return undefined;
}

function invalidQuery(message: string): ConnectError {
  return refusal(new DomainError("INVALID_ARGUMENT", message));
}

function isBase64(text: string): boolean {
  try {
    base64Decode(text);
    return true;
  } catch {
    return false;
  }
}

const TIMEOUT_UNITS_MS: Record<string, number> = { H: 3_600_000, M: 60_000, S: 1_000 };

/** Removes a deadline that exceeds the maximum timer. */
function forgetEndlessTimeout(header: Headers): void {
  const [, amount, unit = ""] = /^(\d{1,8})([HMS])$/.exec(header.get("grpc-timeout") ?? "") ?? [];
  if (Number(amount) * (TIMEOUT_UNITS_MS[unit] ?? 0) > MAX_TIMER_MS) header.delete("grpc-timeout");
  if (Number(header.get("connect-timeout-ms")) > MAX_TIMER_MS) header.delete("connect-timeout-ms");
}
