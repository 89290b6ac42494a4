import { Code, type Interceptor } from "@connectrpc/connect";
import type { Logger } from "pino";
import { toConnectError } from "./errors.ts";

/**
 * Turns whatever a service throws into an error that may leave the service, and logs each call at debug: its name,
 * outcome and milliseconds, never header values or messages.
 */
export function errorInterceptor(log: Logger): Interceptor {
  return (next) => async (request) => {
    const name = `${request.service.typeName}/${request.method.name}`;
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
