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
 * Turns whatever a service throws into an error that may leave the service, and logs each call at debug: its name,
 * outcome and milliseconds, never header values or messages.
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
 * Refuses calls while the database does not answer, those that wait for it too. The messages of a stream that has begun are
 * left to its deadline.
 */
export function silenceInterceptor(database: SilentDatabase): Interceptor {
  return (next) => (request) =>
    needsDatabase(request.method) ? database.refuseWhileSilent(() => next(request)) : next(request);
}

/**
 * Ends a call with its deadline, with its caller, and with the service's time to stop, whichever comes first, even
 * while its work goes on. What the work asks of the database is given up then.
 */
export function endingInterceptor(log: Logger): Interceptor {
  return (next) => async (request) => {
    const { signal } = request;
    // Nobody is told of a fault that comes after the end, but for the log.
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
 * Refuses requests that lack a required field or hold a time out of range, naming all of them at once. Events are checked
 * one by one where they are read: a bad one stops no other of its batch.
 */
export const fieldsInterceptor: Interceptor = (next) => async (request) => {
  if (!request.stream && !PUBLISHING.has(request.method)) assertFields(request.method.input, request.message);
  return next(request);
};

/** Tells a caller who goes away in the middle of their stream from a fault of ours. */
export const readingInterceptor: Interceptor = (next) => (request) =>
  next(request.stream ? { ...request, message: fromCaller(request.message) } : request);

async function* fromCaller<T>(messages: AsyncIterable<T>): AsyncIterable<T> {
  try {
    yield* messages;
  } catch (error) {
    if (error instanceof ConnectError) throw error;
    // Messages that cannot be read are told as such; what else can go wrong here is the connection.
    throw new ConnectError("the caller went away", Code.Canceled, undefined, undefined, error);
  }
}

function nameOf(request: { service: { typeName: string }; method: { name: string } }): string {
  return `${request.service.typeName}/${request.method.name}`;
}
