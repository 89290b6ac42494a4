import { Code, ConnectError, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import type { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";

/** The deadline of unary calls, in milliseconds. Streams have none: an export takes as long as it takes. */
const TIMEOUT_MS = 60_000;
/** The call that waits for an endpoint, for up to DELIVERY_TIMEOUT, which is five minutes at most. */
const TRIES_ENDPOINT: keyof typeof WebhookService.method = "tryWebhookRequest";
/** The deadline of that call, in milliseconds. */
const TRY_TIMEOUT_MS = 6 * 60_000;

/**
 * Calls the service that served the page, with the cookie of the session. The header proves that the page makes the
 * call, and no other.
 *
 * @param onSessionEnd told when a call shows that the session is over
 */
export function createPageTransport(onSessionEnd: () => void): Transport {
  const transport = createConnectTransport({
    baseUrl: window.location.origin,
    interceptors: [
      fromPage,
      noticing((error) => {
        if (ConnectError.from(error).code === Code.Unauthenticated) onSessionEnd();
      }),
    ],
  });
  return {
    stream: transport.stream,
    // The service gets the deadline too, and ends the call's work.
    unary: (method, signal, timeoutMs, ...rest) => {
      const deadlineMs = method.localName === TRIES_ENDPOINT ? TRY_TIMEOUT_MS : TIMEOUT_MS;
      return transport.unary(method, signal, timeoutMs ?? deadlineMs, ...rest);
    },
  };
}

const fromPage: Interceptor = (next) => (request) => {
  request.header.set("X-Settings-Page", "1");
  return next(request);
};

/** Tells of every failure, of streams too, but for those of signing in. */
function noticing(notice: (error: unknown) => void): Interceptor {
  return (next) => async (request) => {
    if (request.service.typeName === SessionService.typeName) return next(request);
    try {
      const response = await next(request);
      return response.stream ? { ...response, message: noticed(response.message, notice) } : response;
    } catch (error) {
      notice(error);
      throw error;
    }
  };
}

async function* noticed<T>(messages: AsyncIterable<T>, notice: (error: unknown) => void): AsyncIterable<T> {
  try {
    yield* messages;
  } catch (error) {
    notice(error);
    throw error;
  }
}
