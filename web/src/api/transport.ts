import { Code, ConnectError, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { SessionService } from "../../../gen/webhook/v1/session_pb.ts";
import type { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { BASE_PATH } from "../base-path.ts";
import { noteAnswer } from "./away.ts";
import { wasAnswered } from "./failure.ts";

/** The deadline of unary calls, in milliseconds. Streams have none: an export takes as long as it takes. */
const TIMEOUT_MS = 60_000;
/** The call that waits for an endpoint, for up to DELIVERY_TIMEOUT, which is five minutes at most. */
const TRIES_ENDPOINT: keyof typeof WebhookService.method = "tryWebhookRequest";
/** The deadline of that call, in milliseconds. */
const TRY_TIMEOUT_MS = 6 * 60_000;

/** Opens a connection whose calls pass the interceptors. */
export type Connect = (interceptors: Interceptor[]) => Transport;

const toPageOrigin: Connect = (interceptors) =>
  createConnectTransport({ baseUrl: window.location.origin + BASE_PATH, interceptors });

/**
 * Calls the service that served the page, with the cookie of the session. The header proves that the page makes the
 * call, and no other.
 *
 * @param checkSession called when a call is refused because it has no session. Returns whether there is one now: another tab may
 *   have started it
 * @param connect defaults to calls of the page's origin
 */
export function createPageTransport(
  checkSession: () => Promise<boolean>,
  connect: Connect = toPageOrigin,
): Transport {
  const transport = connect([fromPage, checkingSession(checkSession), noting]);
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

/** Notes whether the service answers. */
const noting: Interceptor = (next) => async (request) => {
  try {
    const response = await next(request);
    noteAnswer(true);
    return response.stream ? { ...response, message: checked(response.message, noteFailure) } : response;
  } catch (error) {
    noteFailure(error);
    throw error;
  }
};

/** Errors of calls that the page ended itself, which say nothing about the service. */
const OWN: ReadonlySet<Code> = new Set([Code.Canceled, Code.DeadlineExceeded]);

function noteFailure(error: unknown): void {
  if (!OWN.has(ConnectError.from(error).code)) noteAnswer(wasAnswered(error));
}

/**
 * Checks the session when a call or stream is refused because it has none, except calls of SessionService. Makes a call, but not a
 * stream, again if there is a new session.
 */
function checkingSession(check: () => Promise<boolean>): Interceptor {
  let checking: Promise<boolean> | undefined;
  /** Whether a call failed because it had no session, and there is one now. Calls that fail together check it once. */
  async function hasNewSession(error: unknown): Promise<boolean> {
    if (ConnectError.from(error).code !== Code.Unauthenticated) return false;
    checking ??= check().finally(() => {
      checking = undefined;
    });
    return checking;
  }
  return (next) => async (request) => {
    if (request.service.typeName === SessionService.typeName) return next(request);
    try {
      const response = await next(request);
      return response.stream ? { ...response, message: checked(response.message, hasNewSession) } : response;
    } catch (error) {
      if (await hasNewSession(error)) return next(request);
      throw error;
    }
  };
}

/** Runs a check if a stream fails. Does not repeat it: its reader opens another one after an error. */
async function* checked<T>(messages: AsyncIterable<T>, check: (error: unknown) => unknown): AsyncIterable<T> {
  try {
    yield* messages;
  } catch (error) {
    await check(error);
    throw error;
  }
}
