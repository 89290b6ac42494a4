import type { DescMessage, DescMethod, Message } from "@bufbuild/protobuf";
import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import type { Tracer } from "@opentelemetry/api";
import type { Logger } from "pino";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import {
  inJsonNames,
  type OnRefused,
  speaksJson,
  statusNameOf,
  toConnectError,
} from "../calls/errors/index.ts";
import { assertFields, callerIn, callTrace } from "../calls/index.ts";
import { needsDatabase } from "../keys/gate/index.ts";
import { eachOnBehalfOf, isGivenUp, onBehalfOf } from "../lib/pg/index.ts";
import { type ApiInstruments, endCall, startCall, traceparentOf, within } from "../metrics/index.ts";
import { orAborted, untilAborted } from "./context/ending.ts";
import type { SilentDatabase } from "./context/silent-database.ts";
import type { TurnsOf } from "./turns/call-turns.ts";

/** Traces each call, as part of the caller's trace if it names one. */
export function traceInterceptor(tracer: Tracer): Interceptor {
  return (next) => async (request) => {
    const span = startCall(tracer, nameOf(request), request.header.get("traceparent"));
    request.contextValues.set(callTrace, traceparentOf(span));
    const failed = (error: unknown) => {
      endCall(span, statusNameOf(ConnectError.from(error).code));
      return error;
    };
    try {
      const response = await within(span, () => next(request));
      if (response.stream)
        return { ...response, message: guarded(response.message, () => endCall(span, undefined), failed) };
      endCall(span, undefined);
      return response;
    } catch (error) {
      throw failed(error);
    }
  };
}

const PUBLISHING: ReadonlySet<DescMethod> = new Set([
  EventService.method.publishEvent,
  EventService.method.publishEventBatch,
]);

/**
 * Turns whatever a service throws into an error that may leave the service, and logs each call at debug: its name,
 * outcome and milliseconds, never header values or messages.
 *
 * @param onRefused called for each refused call
 */
export function errorInterceptor(
  log: Logger,
  { rpcDuration }: ApiInstruments,
  onRefused: OnRefused,
): Interceptor {
  return (next) => async (request) => {
    const name = nameOf(request);
    const started = performance.now();
    const done = (code: Code | undefined) => {
      const ms = performance.now() - started;
      rpcDuration.record(ms / 1_000, callAttributes(name, code));
      log.debug({ method: name, code: code === undefined ? "OK" : Code[code], ms: Math.round(ms) }, "call");
    };
    const failed = (error: unknown) => {
      const found = toConnectError(error, log, name, request.method.input);
      const told = speaksJson(request.header, request.url) ? inJsonNames(found, request.method.input) : found;
      done(told.code);
      onRefused(told);
      return told;
    };
    try {
      const response = await next(request);
      if (response.stream) return { ...response, message: guarded(response.message, done, failed) };
      done(undefined);
      return response;
    } catch (error) {
      throw failed(error);
    }
  };
}

async function* guarded<T>(
  messages: AsyncIterable<T>,
  done: (code: undefined) => void,
  failed: (error: unknown) => unknown,
): AsyncIterable<T> {
  try {
    yield* messages;
    done(undefined);
  } catch (error) {
    throw failed(error);
  }
}

/**
 * Rejects calls while the database does not respond, including calls that already wait for it. Later messages of a
 * stream are bounded only by its deadline.
 */
export function silenceInterceptor(database: SilentDatabase): Interceptor {
  return (next) => (request) =>
    needsDatabase(request.method) ? database.refuseWhileSilent(() => next(request)) : next(request);
}

/**
 * Ends a call at its deadline, on cancellation, or at shutdown, whichever comes first. Its database queries are
 * cancelled.
 *
 * @param works told what the thread works on: the call, whenever it continues. Defaults to nothing
 * @param turns what the queries of calls with a key take. Defaults to none
 */
export function endingInterceptor(
  log: Logger,
  works: (on: string) => void = () => {},
  turns?: TurnsOf,
): Interceptor {
  return (next) => async (request) => {
    const { signal, method } = request;
    const key = turns && callerIn(request.contextValues);
    const name = nameOf(request);
    const onResult = () => works(name);
    const call = { turns: key ? turns(method, key.id) : undefined, onResult };
    onResult();
    // Errors after the end of the call are only logged.
    const late = (error: unknown) => {
      if (!isGivenUp(error)) toConnectError(error, log, name);
    };
    const response = await orAborted(
      onBehalfOf(signal, () => next(request), call),
      signal,
      late,
    );
    if (!response.stream) return response;
    const messages = eachOnBehalfOf(signal, response.message, call);
    return { ...response, message: untilAborted(messages, signal, late) };
  };
}

/**
 * Rejects requests that lack a required field or contain a time out of range; the error names all of them. Events of
 * batches are checked individually, so that an invalid one does not affect the others.
 */
export const fieldsInterceptor: Interceptor = (next) => async (request) => {
  const { method } = request;
  if (!request.stream) {
    if (!PUBLISHING.has(method)) assertFields(method.input, request.message);
    return next(request);
  }
  // The one request of a method with a stream of responses comes as a stream, too.
  if (method.methodKind !== "server_streaming") return next(request);
  return next({ ...request, message: withCheckedFields(method.input, request.message) });
};

async function* withCheckedFields<T extends Message>(
  desc: DescMessage,
  messages: AsyncIterable<T>,
): AsyncIterable<T> {
  for await (const message of messages) {
    assertFields(desc, message);
    yield message;
  }
}

/** Reports a connection closed by the client during a stream as CANCELLED instead of an internal error. */
export const readingInterceptor: Interceptor = (next) => (request) =>
  next(request.stream ? { ...request, message: fromCaller(request.message) } : request);

async function* fromCaller<T>(messages: AsyncIterable<T>): AsyncIterable<T> {
  try {
    yield* messages;
  } catch (error) {
    if (error instanceof ConnectError) throw error;
    // Unreadable messages have their own errors. Any other error here is a closed connection.
    throw new ConnectError("the client cancelled the call", Code.Canceled, undefined, undefined, error);
  }
}

/** The attributes of a call by OpenTelemetry's conventions. The status has gRPC's spelling for every protocol. */
function callAttributes(method: string, code: Code | undefined): Record<string, string> {
  const status = code === undefined ? "OK" : statusNameOf(code);
  return {
    "rpc.system.name": "grpc",
    "rpc.method": method,
    "rpc.response.status_code": status,
    ...(code === undefined ? {} : { "error.type": status }),
  };
}

function nameOf(request: { service: { typeName: string }; method: { name: string } }): string {
  return `${request.service.typeName}/${request.method.name}`;
}
