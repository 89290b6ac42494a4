import type { Dispatcher } from "undici";
import { describeFault, isDelivered, type Outcome, parseRetryAfter } from "./outcome.ts";

/** A response is read up to this many bytes; then the connection is cut and the status decides. */
const MAX_RESPONSE_BYTES = 64 * 1024;
/** This much of a response is kept with the attempt, in bytes. */
const KEPT_RESPONSE_BYTES = 1_024;

/**
 * Makes one POST, and tells its outcome once the response is complete, cut off or late.
 *
 * Callbacks, here and in what awaits a delivery's record: a promise each is a tenth of what a delivery costs.
 *
 * @param timeoutMs for everything: connection, request, response headers and body
 * @param on.sent told when the request goes over a connection
 * @param on.outcome told once
 */
export function post(
  client: Dispatcher,
  request: { origin: string; path: string; headers: string[]; body: string },
  timeoutMs: number,
  on: { sent?: () => void; outcome: (outcome: Outcome) => void },
): void {
  const startedAt = performance.now();
  const state = {
    started: new Date(),
    sentAt: startedAt,
    settled: false,
    status: null as number | null,
    retryAfterMs: null as number | null,
    received: 0,
    kept: [] as Buffer[],
    keptBytes: 0,
    controller: undefined as Dispatcher.DispatchController | undefined,
  };

  function settle(error: string | null, hostFault: boolean): void {
    if (state.settled) return;
    state.settled = true;
    clearTimeout(timer);
    const endedAt = performance.now();
    on.outcome({
      delivered: error === null && state.status !== null && isDelivered(state.status),
      started: state.started,
      durationMs: Math.round(endedAt - startedAt),
      receiverMs: Math.round(endedAt - state.sentAt),
      status: state.status,
      error,
      responseStart: state.keptBytes > 0 ? text(state.kept) : null,
      retryAfterMs: state.retryAfterMs,
      hostFault,
    });
  }

  const timer = setTimeout(() => {
    const inTime = `within ${timeoutMs / 1_000} s`;
    if (!state.controller) settle(`no connection ${inTime}, DNS lookup included`, true);
    else settle(`${state.status === null ? "no response" : "response not complete"} ${inTime}`, true);
    state.controller?.abort(new Error("time-out"));
  }, timeoutMs);

  client.dispatch(
    {
      origin: request.origin,
      path: request.path,
      method: "POST",
      headers: request.headers,
      body: request.body,
    },
    {
      onRequestStart(controller) {
        state.controller = controller;
        state.sentAt = performance.now();
        on.sent?.();
        // Settled while it waited for a connection: it must not be sent any more.
        if (state.settled) controller.abort(new Error("time-out"));
      },
      onResponseStart(_controller, status, headers) {
        if (status < 200) return;
        state.status = status;
        const retryAfter = headers["retry-after"];
        state.retryAfterMs = parseRetryAfter(
          Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
          Date.now(),
        );
      },
      onResponseData(controller, chunk) {
        if (state.keptBytes < KEPT_RESPONSE_BYTES) {
          const part = Buffer.from(chunk.subarray(0, KEPT_RESPONSE_BYTES - state.keptBytes));
          state.kept.push(part);
          state.keptBytes += part.length;
        }
        state.received += chunk.length;
        if (state.received > MAX_RESPONSE_BYTES) {
          settle(null, false);
          controller.abort(new Error("response too large"));
        }
      },
      onResponseEnd: () => settle(null, false),
      onResponseError: (_controller, error) => settle(describeFault(error), true),
    },
  );
}

/** PostgreSQL's text holds no NUL; a cut or binary response shows replacement characters. */
function text(parts: Buffer[]): string {
  return Buffer.concat(parts).toString("utf8").replaceAll("\0", "\uFFFD");
}
