import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  compressedFlag,
  encodeEnvelope,
  readAllBytes,
  transformSplitEnvelope,
  type UniversalServerRequest,
} from "@connectrpc/connect/protocol";
import { DomainError } from "../../contract/errors.ts";
import { isPublic } from "../auth/public-services.ts";
import { refusal } from "../errors/errors.ts";
import { checkJsonMessage } from "../json/request-text.ts";
import { decompress, REQUEST_ENCODINGS } from "./decompress.ts";
import { checkBinaryElements } from "./element-limit.ts";
import type { HeldCall } from "./held-bytes.ts";
import { type MessageLimits, messageLimits, messageTooLarge } from "./message-limits.ts";

/** gRPC, gRPC-Web and Connect's streams put each message into an envelope. */
const ENVELOPED = /^application\/(?:grpc|connect\+)/i;
const GRPC = /^application\/grpc/i;
/** Smaller pieces of memory are left to the garbage collector. */
const FREED_FROM_BYTES = 16 * 1_024;
const JSON_TYPE = /\bjson\b/i;

/** How the messages of one request are read. */
interface Reading {
  method: DescMethod;
  limits: MessageLimits;
  /** The encoding of compressed messages; null when none is. */
  encoding: string | null;
  /** The header that names the encoding. */
  encodingHeader: string;
  isGrpc: boolean;
  isJson: boolean;
  call: HeldCall;
  /** How long the client may send nothing while a message is incomplete, in milliseconds; undefined for no limit. */
  idleMs: number | undefined;
}

/**
 * A request whose body is read within the method's limits: messages are counted, decompressed and checked here, so the
 * library below sees only complete, uncompressed messages. Nothing is read before the library asks for it, which it does
 * after the key was checked.
 *
 * @param call accounts for the bytes; the caller closes it when the call ends
 * @param idleMs how long a client may send nothing while the service waits for a message, in milliseconds
 */
export function withBoundedBody(
  request: UniversalServerRequest,
  method: DescMethod,
  call: HeldCall,
  idleMs: number,
): UniversalServerRequest {
  const body = request.body;
  if (typeof body !== "object" || body === null || !(Symbol.asyncIterator in body)) return request;
  const type = request.header.get("Content-Type") ?? "";
  const enveloped = ENVELOPED.test(type);
  const isGrpc = GRPC.test(type);
  const encodingHeader = isGrpc
    ? "grpc-encoding"
    : enveloped
      ? "connect-content-encoding"
      : "content-encoding";
  const encoding = request.header.get(encodingHeader);
  const length = request.header.get("content-length");
  const header = new Headers(request.header);
  header.delete(encodingHeader);
  // The length of the bytes that were sent is not that of the message.
  header.delete("content-length");
  const streamsForLong = method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming";
  const reading: Reading = {
    method,
    limits: messageLimits(method),
    encoding: encoding === "identity" || encoding === "" ? null : encoding,
    encodingHeader,
    isGrpc,
    isJson: JSON_TYPE.test(type),
    call,
    // Publishers may keep a stream open between events; whoever has no key may not.
    idleMs: streamsForLong && !isPublic(method) ? undefined : idleMs,
  };
  return {
    ...request,
    header,
    body: enveloped ? envelopes(body, reading) : wholeBody(body, reading, length),
  };
}

/** The one message of a unary call by Connect. */
async function* wholeBody(
  body: AsyncIterable<Uint8Array>,
  reading: Reading,
  length: string | null,
): AsyncIterable<Uint8Array> {
  assertEncoding(reading);
  const { maxBytes } = reading.limits;
  // The library copies chunks as they come when it knows how many bytes will.
  const isKnown = Number.isSafeInteger(Number.parseInt(length ?? "", 10));
  const bytes = await readAllBytes(received(body, reading, isKnown), maxBytes, length).catch(
    (error: unknown) => {
      throw tooLargeOr(error, maxBytes);
    },
  );
  yield await plain(bytes, reading);
}

/** The messages of a call, each in an envelope without compression. */
async function* envelopes(body: AsyncIterable<Uint8Array>, reading: Reading): AsyncIterable<Uint8Array> {
  assertEncoding(reading);
  const { method, limits, call, encoding } = reading;
  const isUnary = method.methodKind === "unary";
  const split = transformSplitEnvelope(limits.maxBytes)(received(body, reading, false));
  try {
    for await (const { flags, data } of split) {
      const compressed = (flags & compressedFlag) !== 0;
      if (compressed && encoding === null) throw namesNoEncoding(reading);
      const message = compressed ? await plain(data, reading) : check(data, reading);
      yield encodeEnvelope(compressed ? flags & ~compressedFlag : flags, message as Uint8Array<ArrayBuffer>);
      // The library asks for the next message once it has parsed this one. A unary call keeps its message until it ends.
      if (!isUnary) call.release();
    }
  } catch (error) {
    throw tooLargeOr(error, limits.maxBytes);
  }
}

/**
 * The chunks of a body, each counted before it is handed on.
 *
 * @param copied whether the reader has copied a chunk when it asks for the next
 */
async function* received(
  body: AsyncIterable<Uint8Array>,
  reading: Reading,
  copied: boolean,
): AsyncIterable<Uint8Array> {
  const { call, idleMs } = reading;
  // Not `for await`: its end would destroy the request and, over HTTP/1.1, the connection that the error is sent on.
  const chunks = body[Symbol.asyncIterator]();
  for (;;) {
    const { done, value } = await (idleMs === undefined
      ? chunks.next()
      : withinIdleTime(chunks.next(), idleMs));
    if (done) return;
    await counted(call.hold(value.byteLength));
    yield value;
    if (copied) free(value);
  }
}

/**
 * Frees at once what nobody reads again. V8 would start a garbage collection for every 64 MiB of such memory, which takes
 * more time than all else that is done for large messages. Nothing happens to memory that other views may share.
 */
function free({ buffer, byteLength }: Uint8Array): void {
  const isWhole = byteLength === buffer.byteLength && byteLength >= FREED_FROM_BYTES;
  if (isWhole && buffer instanceof ArrayBuffer) buffer.transfer(0);
}

/** The message, decompressed where it was compressed, and checked. */
async function plain(bytes: Uint8Array, reading: Reading): Promise<Uint8Array> {
  const { encoding, limits, call } = reading;
  if (encoding === null) return check(bytes, reading);
  // Room for the largest result first, since all that are decompressed at once grow at once.
  await counted(call.hold(limits.maxBytes));
  const message = await decompress(encoding, bytes, limits.maxBytes).catch(asRefusal);
  free(bytes);
  call.release(limits.maxBytes - message.byteLength);
  return check(message, reading);
}

function check(message: Uint8Array, { method, isJson }: Reading): Uint8Array {
  try {
    if (isJson) checkJsonMessage(message);
    else checkBinaryElements(method.input, message);
  } catch (error) {
    free(message);
    asRefusal(error);
  }
  return message;
}

function assertEncoding({ encoding, limits, method, isGrpc }: Reading): void {
  if (encoding === null) return;
  const accepted = limits.compression ? REQUEST_ENCODINGS : [];
  if (accepted.includes(encoding)) return;
  const problem = limits.compression
    ? `requests cannot be compressed as ${JSON.stringify(encoding.slice(0, 50))}; use ${accepted.join(" or ")}, or send them uncompressed`
    : `${method.name} does not accept compressed requests; send them uncompressed`;
  // gRPC has a status for this. Connect's would be HTTP 501, as if the service were at fault.
  throw refusal(new DomainError(isGrpc ? "UNIMPLEMENTED" : "INVALID_ARGUMENT", problem));
}

/** The library's error would be INTERNAL, as if the service were at fault. */
function namesNoEncoding({ encodingHeader }: Reading): ConnectError {
  return refusal(
    new DomainError(
      "INVALID_ARGUMENT",
      `a message is flagged as compressed, but ${encodingHeader} names no encoding; name it, or clear the flag`,
    ),
  );
}

function tooLargeOr(error: unknown, maxBytes: number): unknown {
  const isTooLarge =
    error instanceof ConnectError && error.code === Code.ResourceExhausted && error.details.length === 0;
  return isTooLarge ? refusal(messageTooLarge(maxBytes)) : error;
}

async function counted(room: Promise<void> | undefined): Promise<void> {
  await room?.catch(asRefusal);
}

function asRefusal(error: unknown): never {
  throw error instanceof DomainError ? refusal(error) : error;
}

function withinIdleTime<T>(next: Promise<T>, idleMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(
        new ConnectError(
          `the request was incomplete and nothing arrived for ${idleMs / 1_000} s; send it again`,
          Code.Canceled,
        ),
      );
    }, idleMs);
    next.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
