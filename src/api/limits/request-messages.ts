import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import {
  compressedFlag,
  encodeEnvelope,
  readAllBytes,
  type UniversalServerRequest,
} from "@connectrpc/connect/protocol";
import { refusal } from "../../calls/errors/index.ts";
import { LONG_WORK_BYTES } from "../../calls/index.ts";
import { DomainError } from "../../contract/errors.ts";
import { isPublic } from "../../keys/gate/index.ts";
import { decompress, REQUEST_ENCODINGS } from "./decompress.ts";
import { checkBinaryElements } from "./element-limit.ts";
import type { HeldCall } from "./held-bytes.ts";
import { type MessageLimits, messageLimits, messageTooLarge } from "./message-limits.ts";
import { checkJsonMessage } from "./request-text.ts";
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
interface Reading {
  method: DescMethod;
  limits: MessageLimits;
  /** The encoding of compressed messages; null if none. */
  encoding: string | null;
  /** The header that names the encoding. */
  encodingHeader: string;
  isGrpc: boolean;
  isJson: boolean;
  call: HeldCall;
  holds: BodyLimits["holds"];
  turn: BodyLimits["turn"];
  /** Does nothing for streams of requests, whose errors pass the interceptors. */
  onRefused: BodyLimits["onRefused"];
  /** As in `BodyLimits`. */
  idleMs: number;
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
  { call, idleMs, holds, turn, onRefused }: BodyLimits,
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
  request.header.delete(encodingHeader);
  // The length of the body is not that of the decompressed message.
  request.header.delete("content-length");
  const streamsForLong = method.methodKind === "client_streaming" || method.methodKind === "bidi_streaming";
  const reading: Reading = {
    method,
    limits: messageLimits(method),
    encoding: encoding === "identity" || encoding === "" ? null : encoding,
    encodingHeader,
    isGrpc,
    isJson: JSON_TYPE.test(type),
    call,
    holds,
    turn,
    onRefused: streamsForLong ? () => {} : onRefused,
    idleMs,
    // Authenticated publishers may keep a stream idle between events; other callers may not.
    mayPause: streamsForLong && !isPublic(method),
  };
  return {
    ...request,
    body: enveloped ? envelopes(body, reading) : wholeBody(body, reading, length),
  };
}

/** The single message of a unary Connect call. */
async function* wholeBody(
  body: AsyncIterable<Uint8Array>,
  reading: Reading,
  length: string | null,
): AsyncIterable<Uint8Array> {
  const { maxBytes } = reading.limits;
  try {
    assertEncoding(reading);
    // If the length is known, the library copies chunks as they arrive.
    const isKnown = Number.isSafeInteger(Number.parseInt(length ?? "", 10));
    const bytes = await readAllBytes(received(body, reading, isKnown), maxBytes, length);
    yield await plain(bytes, reading);
  } catch (error) {
    throw told(error, reading);
  }
}

/** The messages of a call as uncompressed envelopes. */
async function* envelopes(body: AsyncIterable<Uint8Array>, reading: Reading): AsyncIterable<Uint8Array> {
  const { method, limits, call, encoding } = reading;
  const isUnary = method.methodKind === "unary";
  try {
    assertEncoding(reading);
    const chunks = received(body, reading, false);
    for await (const { envelope, rest } of wholeEnvelopes(chunks, limits.maxBytes)) {
      const flags = envelope[0] as number;
      const data = envelope.subarray(ENVELOPE_HEAD_BYTES);
      if ((flags & compressedFlag) === 0) {
        if (isLarge(data)) await reading.turn();
        check(data, reading, envelope);
        yield envelope;
      } else {
        if (encoding === null) throw namesNoEncoding(reading);
        const message = await plain(data, reading, envelope);
        yield encodeEnvelope(flags & ~compressedFlag, message as Uint8Array<ArrayBuffer>);
      }
      // The library has parsed a message when it asks for the next. A unary call keeps its message until it ends.
      if (!isUnary) call.releaseAllBut(rest);
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
  reading: Reading,
  copied: boolean,
): AsyncIterable<Uint8Array> {
  const { call, idleMs, mayPause, holds } = reading;
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
    await counted(call.hold(value.byteLength));
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

/** The message, decompressed and checked. @param holder what holds the bytes, which is freed once they are read */
async function plain(bytes: Uint8Array, reading: Reading, holder = bytes): Promise<Uint8Array> {
  const { encoding, limits, call, turn } = reading;
  let message = bytes;
  if (encoding !== null) {
    // Reserves the maximum size first, because concurrent messages are decompressed at the same time.
    await counted(call.hold(limits.maxBytes));
    message = await decompress(encoding, bytes, limits.maxBytes).catch(asRefusal);
    free(holder);
    call.release(limits.maxBytes - message.byteLength);
  }
  if (isLarge(message)) await turn();
  return check(message, reading, encoding === null ? holder : message);
}

const isLarge = ({ byteLength }: Uint8Array) => byteLength >= LONG_WORK_BYTES;

/** @param holder what holds the message, which is freed if it is refused */
function check(message: Uint8Array, { method, isJson }: Reading, holder = message): Uint8Array {
  try {
    if (isJson) checkJsonMessage(message);
    else checkBinaryElements(method.input, message);
  } catch (error) {
    free(holder);
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
  // gRPC has a status for this. Connect's would be HTTP 501, which suggests a server error.
  throw refusal(new DomainError(isGrpc ? "UNIMPLEMENTED" : "INVALID_ARGUMENT", problem));
}

/** The library would report INTERNAL, which suggests a server error. */
function namesNoEncoding({ encodingHeader }: Reading): ConnectError {
  return refusal(
    new DomainError(
      "INVALID_ARGUMENT",
      `a message is flagged as compressed, but ${encodingHeader} names no encoding; name it, or clear the flag`,
    ),
  );
}

/** The error for the caller. The library names no limit. */
function told(error: unknown, { limits, onRefused }: Reading): unknown {
  if (!(error instanceof ConnectError)) return error;
  const hasDetails = error.details.length > 0;
  const isTooLarge = error.code === Code.ResourceExhausted && !hasDetails;
  const answered = isTooLarge ? refusal(messageTooLarge(limits.maxBytes)) : error;
  if (answered.details.length > 0) onRefused(answered);
  return answered;
}

async function counted(room: Promise<void> | undefined): Promise<void> {
  await room?.catch(asRefusal);
}

function asRefusal(error: unknown): never {
  throw error instanceof DomainError ? refusal(error) : error;
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
