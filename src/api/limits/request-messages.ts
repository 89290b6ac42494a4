import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  compressedFlag,
  encodeEnvelope,
  readAllBytes,
  type UniversalServerRequest,
} from "@connectrpc/connect/protocol";
import { refusal } from "../../calls/errors/index.ts";
import { elements, LONG_WORK_BYTES } from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { isPublic } from "../../keys/gate/index.ts";
import { decompress, REQUEST_ENCODINGS } from "./decompress.ts";
import type { HeldCall } from "./held-bytes.ts";
import { type MessageLimits, messageLimits, messageTooLarge } from "./message-limits.ts";
import { ENVELOPE_HEAD_BYTES, wholeEnvelopes } from "./whole-envelopes.ts";

/**
 * The rate, in bytes per second, below which the receipt of a message uses up the idle timeout. Without it, a byte now and
 * then would keep a message, and its memory, for as long as the client likes.
 */
const MIN_BYTES_PER_SECOND = 16 * 1_024;

/** gRPC, gRPC-Web and Connect streams put each message into an envelope. */
const ENVELOPED = /^application\/(?:grpc|connect\+)/i;
const GRPC = /^application\/grpc/i;
/** The minimum size of buffers that are freed explicitly, in bytes. Smaller ones are left to the garbage collector. */
const FREED_FROM_BYTES = 16 * 1_024;
const JSON_TYPE = /\bjson\b/i;

/** The limits of one call's body beside those of its method. */
export interface BodyLimits {
  /** The account of the bytes; the caller closes it when the call ends. */
  call: HeldCall;
  /** The time that an incomplete message may take beyond that of its bytes at MIN_BYTES_PER_SECOND, in milliseconds. */
  idleMs: number;
  /** Called before bytes are held. */
  holds: () => void;
  /** Resolves when a large message may be read. */
  turn: () => Promise<void>;
  /** Called if a message is refused here, with details, before the library parses it. */
  onRefused: (error: ConnectError) => void;
}

/** The way to read the messages of a request. */
interface Reading extends BodyLimits {
  method: DescMethod;
  limits: MessageLimits;
  /** The encoding of compressed messages; null if none. */
  encoding: string | null;
  /** The header that names the encoding. */
  encodingHeader: string;
  isGrpc: boolean;
  isJson: boolean;
  /** Whether the client may pause between two messages for as long as it likes. */
  mayPause: boolean;
}

/**
 * Reads a request's body within the method's limits. Messages are counted, decompressed and checked here, so that the
 * library only gets complete, uncompressed messages. Reads only when the library asks, which it does after
 * authentication. Removes the headers that describe the body as it was sent.
 */
export function withBoundedBody(
  request: UniversalServerRequest,
  method: DescMethod,
  limits: BodyLimits,
): UniversalServerRequest {
  const { body, header } = request;
  if (typeof body !== "object" || body === null || !(Symbol.asyncIterator in body)) return request;
  const type = header.get("Content-Type") ?? "";
  const enveloped = ENVELOPED.test(type);
  const isGrpc = GRPC.test(type);
  const encodingHeader = isGrpc
    ? "grpc-encoding"
    : enveloped
      ? "connect-content-encoding"
      : "content-encoding";
  const encoding = header.get(encodingHeader);
  const length = header.get("content-length");
  header.delete(encodingHeader);
  // The length of the body is not that of the decompressed message.
  header.delete("content-length");
  const streamsForLong = method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming";
  const reading: Reading = {
    ...limits,
    // Errors of streams of requests pass the interceptors.
    onRefused: streamsForLong ? () => {} : limits.onRefused,
    method,
    limits: messageLimits(method),
    encoding: encoding === "identity" || encoding === "" ? null : encoding,
    encodingHeader,
    isGrpc,
    isJson: JSON_TYPE.test(type),
    // Authenticated publishers may keep a stream idle between events; other callers may not.
    mayPause: streamsForLong && !isPublic(method),
  };
  return { ...request, body: enveloped ? envelopes(body, reading) : wholeBody(body, reading, length) };
}

/** The single message of a unary Connect call. */
async function* wholeBody(
  body: AsyncIterable<Uint8Array>,
  reading: Reading,
  length: string | null,
): AsyncIterable<Uint8Array> {
  try {
    assertEncoding(reading);
    // If the length is known, the library copies chunks as they arrive.
    const isKnown = Number.isSafeInteger(Number.parseInt(length ?? "", 10));
    const bytes = await readAllBytes(received(body, reading, isKnown), reading.limits.maxBytes, length);
    yield await plain(bytes, reading, reading.encoding !== null);
  } catch (error) {
    throw told(error, reading);
  }
}

/** The messages of a call as uncompressed envelopes. */
async function* envelopes(body: AsyncIterable<Uint8Array>, reading: Reading): AsyncIterable<Uint8Array> {
  const { method, limits, call, encoding, encodingHeader } = reading;
  try {
    assertEncoding(reading);
    for await (const envelope of wholeEnvelopes(received(body, reading, false), limits.maxBytes)) {
      const flags = envelope[0] as number;
      const data = envelope.subarray(ENVELOPE_HEAD_BYTES);
      const isCompressed = (flags & compressedFlag) !== 0;
      // The library would report INTERNAL, which suggests a server error.
      if (isCompressed && encoding === null) {
        throw invalid(
          `a message is flagged as compressed, but ${encodingHeader} names no encoding; name it, or clear the flag`,
        );
      }
      let held = envelope.byteLength;
      const message = await plain(data, reading, isCompressed, envelope);
      if (isCompressed) held += message.byteLength;
      yield isCompressed
        ? encodeEnvelope(flags & ~compressedFlag, message as Uint8Array<ArrayBuffer>)
        : envelope;
      // The library has parsed a message when it asks for the next. A unary call keeps its message until it ends.
      if (method.methodKind !== "unary") call.release(held);
    }
  } catch (error) {
    throw told(error, reading);
  }
}

/**
 * The chunks of a body, each counted before it is passed on.
 *
 * @param copied whether the reader has copied a chunk when it asks for the next
 */
async function* received(
  body: AsyncIterable<Uint8Array>,
  { call, idleMs, mayPause, holds }: Reading,
  copied: boolean,
): AsyncIterable<Uint8Array> {
  // Not `for await`: ending it would destroy the request and, over HTTP/1.1, the connection needed for the error.
  const chunks = body[Symbol.asyncIterator]();
  let leftMs = idleMs;
  let heldBefore = 0;
  for (;;) {
    // Between messages nothing is held. Within one, a client that stops would keep the memory from all other calls.
    const isBetween = call.held === 0;
    // Less is held than after the last chunk if a message has ended. The next message, which may have begun, has its own time.
    if (isBetween || call.held < heldBefore) leftMs = idleMs;
    const pauses = mayPause && isBetween;
    const asked = performance.now();
    const next = chunks.next();
    const { done, value } = await (pauses ? next : withinTime(next, leftMs, idleMs));
    if (done) return;
    // A pause does not count against the message after it.
    const tookMs = pauses ? 0 : performance.now() - asked;
    const gainedMs = (value.byteLength / MIN_BYTES_PER_SECOND) * 1_000;
    // A chunk can come just before an overdue timer; the next one must then come at once.
    leftMs = Math.min(idleMs, Math.max(0, leftMs - tookMs + gainedMs));
    holds();
    await call.hold(value.byteLength);
    heldBefore = call.held;
    yield value;
    if (copied) free(value);
  }
}

/**
 * Frees a buffer immediately if no other view shares its memory. V8 would otherwise start a garbage collection for
 * every 64 MiB of such memory, which takes longer than all other processing of large messages.
 */
function free({ buffer, byteLength }: Uint8Array): void {
  const isWhole = byteLength === buffer.byteLength && byteLength >= FREED_FROM_BYTES;
  if (isWhole && buffer instanceof ArrayBuffer) buffer.transfer(0);
}

/**
 * The message, decompressed and checked.
 *
 * @param holder what holds the bytes, which is freed once they are read or refused
 */
async function plain(
  bytes: Uint8Array,
  { encoding, limits, call, turn, isJson, method }: Reading,
  isCompressed: boolean,
  holder = bytes,
): Promise<Uint8Array> {
  let message = bytes;
  if (isCompressed) {
    // Reserves the maximum size first, because concurrent messages are decompressed at the same time.
    await call.hold(limits.maxBytes);
    message = await decompress(encoding as string, bytes, limits.maxBytes);
    free(holder);
    call.release(limits.maxBytes - message.byteLength);
  }
  if (message.byteLength >= LONG_WORK_BYTES) await turn();
  try {
    if (isJson) elements.checkJsonElements(message);
    else elements.checkBinaryElements(method.input, message);
  } catch (error) {
    free(isCompressed ? message : holder);
    throw error;
  }
  return message;
}

function assertEncoding({ encoding, limits, method, isGrpc }: Reading): void {
  if (encoding === null) return;
  const accepted = limits.compression ? REQUEST_ENCODINGS : [];
  if (accepted.includes(encoding)) return;
  const problem = limits.compression
    ? `requests cannot be compressed as ${JSON.stringify(encoding.slice(0, 50))}; use one of ${accepted.join(", ")}, or send them uncompressed`
    : `${method.name} does not accept compressed requests; send them uncompressed`;
  // gRPC has a status for this. Connect's would be HTTP 501, which suggests a server error.
  throw isGrpc ? new DomainError("METHOD_NOT_SERVED", problem) : invalid(problem);
}

function invalid(problem: string): DomainError {
  return new DomainError("REQUEST_INVALID", problem);
}

/** The error for the caller, who is told the limit of large messages: the library names none. */
function told(error: unknown, { limits, onRefused }: Reading): unknown {
  const isTooLarge =
    error instanceof ConnectError && error.code === Code.ResourceExhausted && error.details.length === 0;
  const known = isTooLarge ? messageTooLarge(limits.maxBytes) : error;
  if (!(known instanceof DomainError)) return error;
  const refused = refusal(known);
  onRefused(refused);
  return refused;
}

/** @param idleMs the timeout that the error names */
function withinTime<T>(next: Promise<T>, leftMs: number, idleMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(
        new ConnectError(
          `the request was incomplete, and nothing or less than ${MIN_BYTES_PER_SECOND / 1_024} KiB/s arrived for ${idleMs / 1_000} s; send it again`,
          Code.Canceled,
        ),
      );
    }, leftMs);
    next.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
