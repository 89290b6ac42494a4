import type { DescMethod } from "@bufbuild/protobuf";
import { Code, ConnectError, type Interceptor } from "@connectrpc/connect";
import type { Logger } from "pino";
import { EventService } from "../../gen/webhook/v1/event_pb.ts";
import { isGivenUp, onBehalfOf } from "../db/connections/call-signal.ts";
import { needsDatabase } from "./auth/public-services.ts";
import { orAborted, untilAborted } from "./ending.ts";
import { toConnectError } from "./errors/errors.ts";
import { assertFields } from "./services/messages.ts";
import type { SilentDatabase } from "./silent-database.ts";

const PUBLISHING: ReadonlySet<DescMethod> = new Set([
  EventService.method.publishEvent,
  EventService.method.publishEventBatch,
]);

/**
 * Converts errors of services for callers, and logs each call at debug level: name, outcome and duration, without
 * headers or messages.
 */
export function errorInterceptor(log: Logger): Interceptor {
  return (next) => async (request) => {
    const name = nameOf(request);
    const started = performance.now();
    const done = (code: string) =>
      log.debug({ method: name, code, ms: Math.round(performance.now() - started) }, "call");
    const failed = (error: unknown) => {
      const told = toConnectError(error, log, name);
      done(Code[told.code]);
      return told;
    };
    try {
      const response = await next(request);
      if (response.stream) return { ...response, message: guarded(response.message, failed) };
      done("OK");
      return response;
    } catch (error) {
      throw failed(error);
    }
  };
}

async function* guarded<T>(
  messages: AsyncIterable<T>,
  failed: (error: unknown) => unknown,
): AsyncIterable<T> {
  try {
    yield* messages;
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
 */
export function endingInterceptor(log: Logger): Interceptor {
  return (next) => async (request) => {
    const { signal } = request;
    // Errors after the end of the call are only logged.
    const late = (error: unknown) => {
      if (!isGivenUp(error)) toConnectError(error, log, nameOf(request));
    };
    const response = await orAborted(
      onBehalfOf(signal, () => next(request)),
      signal,
      late,
    );
    return response.stream
      ? { ...response, message: untilAborted(response.message, signal, late) }
      : response;
  };
}

/**
 * Rejects requests that lack a required field or contain a time out of range; the error names all of them. Events of
 * batches are checked individually, so that an invalid one does not affect the others.
 */
export const fieldsInterceptor: Interceptor = (next) => async (request) => {
  if (!request.stream && !PUBLISHING.has(request.method)) assertFields(request.method.input, request.message);
  return next(request);
};

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

function nameOf(request: { service: { typeName: string }; method: { name: string } }): string {
  return `${request.service.typeName}/${request.method.name}`;
}
