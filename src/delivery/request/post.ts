import { ATTEMPT_ERRORS } from "../../contract/attempt-errors.ts";
import {
  type ConnectionTrace,
  type Dispatching,
  describeFault,
  ProxyUnavailableError,
  partsOf,
} from "../../lib/egress/index.ts";
import {
  describeStatus,
  type FailureOf,
  failureOf,
  isDelivered,
  NO_RESPONSE,
  type Outcome,
  parseRetryAfter,
} from "./outcome.ts";
import type { SignedRequest } from "./request.ts";
import { excerptBytes, headerText, responseText } from "./response-text.ts";
import { wishOf } from "./wish.ts";

/** The maximum size of the response headers stored with a failed attempt, names and values, in bytes. */
const MAX_HEADERS_BYTES = 2_048;

/** The remedies of timeouts. */
const ANSWER_SOONER = "the receiver must answer sooner, before it processes the event";
const CHECK_HOST = "check that the receiver runs, and its host and port";

/** If the timer of an attempt fires this late, in milliseconds, this process was suspended or blocked during the attempt. */
const STOOD_STILL_MS = 1_000;

/** Decides whether a request is sent once its connection is established. */
export interface Gate {
  maySend(): boolean;
  /** Called when the request needs a new connection. */
  opens?(): void;
  /** Called if the request was not sent because `maySend` returned false, or the outbound proxy is unavailable. */
  withdrawn(): void;
}

/**
 * Makes one POST. Reports its outcome when the response is complete or broken off, or the timeout has expired.
 *
 * Uses callbacks, as `Recorder` does, because a promise costs a tenth of a delivery's processing time.
 *
 * @param request `signed` is the recorded start of the attempt
 * @param maxTimeoutMs the timeout of the whole attempt, unless the request has a shorter one: connection, request, response headers
 *   and body
 * @param outcome called once, unless the request is withdrawn
 * @param gate asked when the connection is established, right before the request is sent
 */
export function post(
  client: Dispatching,
  request: Pick<
    SignedRequest,
    "origin" | "path" | "headers" | "body" | "signed" | "hidden" | "tls" | "timeoutMs"
  >,
  maxTimeoutMs: number,
  outcome: (outcome: Outcome) => void,
  gate?: Gate,
): void {
  const { origin, path, headers, body, signed, hidden = [], tls } = request;
  const timeoutMs = Math.min(request.timeoutMs ?? maxTimeoutMs, maxTimeoutMs);
  const mostKept = excerptBytes(hidden);
  const startedAt = performance.now();
  let isSettled = false;
  let wasSent = false;
  let isExpired = false;
  const response: Pick<Outcome, keyof typeof NO_RESPONSE | "wish"> = { ...NO_RESPONSE };
  let received = 0;
  const excerpt: Buffer[] = [];
  const trace: ConnectionTrace = {};
  let refusedAt: number | undefined;
  let contentEncoding: string | undefined;
  let contentType: string | undefined;

  /** Ends the attempt. Returns whether it had not ended. */
  function end(): boolean {
    const isFirst = !isSettled;
    isSettled = true;
    clearTimeout(timer);
    return isFirst;
  }

  function settle(error: string | null, failure: FailureOf | null): void {
    if (!end()) return;
    const durationMs = Math.round(performance.now() - startedAt);
    // While the process was suspended, no connection could be established: the timeout is not the host's fault.
    const isOurs = failure === "host timeout" && durationMs > timeoutMs + STOOD_STILL_MS;
    if (received > 0) {
      const bytes = Buffer.concat(excerpt);
      response.responseStart = responseText({ bytes, received, contentEncoding, contentType }, hidden);
    }
    if (!response.delivered) response.timing = partsOf(trace, refusedAt).join(" ") || null;
    outcome({ ...response, started: signed, durationMs, error, failure: isOurs ? "ours" : failure });
  }

  function expire(): void {
    if (isSettled) return;
    isExpired = true;
    giveUp();
    const inTime = `within ${timeoutMs / 1_000} s`;
    if (response.status !== null) endBody();
    else if (wasSent) settle(`${ATTEMPT_ERRORS.noResponse} ${inTime}; ${ANSWER_SOONER}`, "webhook timeout");
    else
      settle(`${ATTEMPT_ERRORS.noConnection} ${inTime}, DNS lookup included; ${CHECK_HOST}`, "host timeout");
  }

  // Node runs timers before I/O. By `setImmediate`, a response that arrived while the process was busy is read before the attempt expires.
  const timer = setTimeout(() => setImmediate(expire), timeoutMs);

  /** From the response headers on, the status decides, even if the body is incomplete. */
  function endBody(): void {
    settle(describeStatus(response.status as number, response.retryAfterMs), null);
  }

  function withdraw(from: Gate): void {
    if (end()) from.withdrawn();
  }

  const giveUp = client.dispatch(
    { origin, path, method: "POST", headers, body },
    {
      onRequestStart(controller) {
        wasSent = true;
        // The timeout expired while waiting for a connection: do not send.
        if (isSettled) controller.abort(new Error("time-out"));
        else if (gate && !gate.maySend()) {
          withdraw(gate);
          controller.abort(new Error("withdrawn"));
        }
      },
      onResponseStart(_controller, code, fields) {
        if (code < 200 && code !== 101) return;
        response.status = code;
        response.delivered = isDelivered(code);
        if (!response.delivered) {
          refusedAt = performance.now();
          response.responseHeaders = headersText(fields, hidden);
        }
        contentEncoding = fields["content-encoding"]?.toString();
        contentType = fields["content-type"]?.toString();
        const { "retry-after": retryAfter, date } = fields;
        if (retryAfter !== undefined) {
          response.retryAfterMs = parseRetryAfter(
            Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
            // The receiver's clock may differ.
            Date.parse(String(date)) || Date.now(),
          );
        }
        response.wish = wishOf(code, fields, response.retryAfterMs);
      },
      onResponseData(_controller, chunk) {
        if (received < mostKept) excerpt.push(Buffer.from(chunk.subarray(0, mostKept - received)));
        received += chunk.length;
      },
      onResponseEnd: endBody,
      onResponseError: (_controller, error) => {
        if (isExpired) return;
        if (gate && error instanceof ProxyUnavailableError) withdraw(gate);
        else if (response.status !== null) endBody();
        else settle(describeFault(error), failureOf(error, wasSent, tls !== undefined));
      },
    },
    {
      tls,
      trace,
      onOpen() {
        wasSent = false;
        gate?.opens?.();
      },
    },
  );
}

/** Returns the headers that fit into MAX_HEADERS_BYTES as JSON, except cookies, which are credentials; null if none. */
function headersText(
  headers: Record<string, string | string[] | undefined>,
  hidden: readonly string[],
): string | null {
  const kept: string[] = [];
  let left = MAX_HEADERS_BYTES;
  for (const [name, values] of Object.entries(headers)) {
    if (name === "set-cookie") continue;
    for (const each of [values ?? []].flat()) {
      const value = headerText(each, hidden);
      const bytes = name.length + value.length;
      if (bytes > left) continue;
      left -= bytes;
      kept.push(name, value);
    }
  }
  return kept.length > 0 ? JSON.stringify(kept) : null;
}
