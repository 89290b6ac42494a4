import type { Dispatcher } from "undici";
import type { Connections } from "../http/connections.ts";
import {
  describeFault,
  type FailureOf,
  failureOf,
  isDelivered,
  type Outcome,
  parseRetryAfter,
} from "./outcome.ts";

/** A response is read up to this many bytes; then the connection is cut and the status decides. */
const MAX_RESPONSE_BYTES = 64 * 1024;
/** This much of a response is kept with the attempt, in bytes. */
const KEPT_RESPONSE_BYTES = 1_024;

/** An attempt that its timer ended so much too late, in milliseconds, ran while this process stood still. */
const STOOD_STILL_MS = 1_000;

/** Decides whether a request that has its connection is sent after all. */
export interface Gate {
  maySend(): boolean;
  /** Told when it was not sent, since `maySend` said no. */
  withdrawn(): void;
}

/**
 * Makes one POST, and tells its outcome once the response is complete, cut off or late.
 *
 * Callbacks, here and in what awaits a delivery's record: a promise each is a tenth of what a delivery costs.
 *
 * @param timeoutMs for everything: connection, request, response headers and body
 * @param outcome told once, unless the request is withdrawn
 * @param gate asked when there is a connection, right before the request is sent over it
 */
export function post(
  client: Pick<Connections, "dispatch">,
  request: { origin: string; path: string; headers: string[]; body: string },
  timeoutMs: number,
  outcome: (outcome: Outcome) => void,
  gate?: Gate,
): void {
  const startedAt = performance.now();
  const state = {
    started: new Date(),
    settled: false,
    status: null as number | null,
    retryAfterMs: null as number | null,
    received: 0,
    kept: [] as Buffer[],
    keptBytes: 0,
    controller: undefined as Dispatcher.DispatchController | undefined,
  };

  function settle(error: string | null, failure: FailureOf | null): void {
    if (state.settled) return;
    state.settled = true;
    clearTimeout(timer);
    const durationMs = Math.round(performance.now() - startedAt);
    // A request that was sent could be answered meanwhile, but no connection be made.
    const isOurs = failure === "host timeout" && durationMs > timeoutMs + STOOD_STILL_MS;
    outcome({
      delivered: error === null && state.status !== null && isDelivered(state.status),
      started: state.started,
      durationMs,
      status: state.status,
      error,
      responseStart: state.keptBytes > 0 ? text(state.kept) : null,
      retryAfterMs: state.retryAfterMs,
      failure: isOurs ? "ours" : failure,
    });
  }

  function expire(): void {
    if (state.settled) return;
    const inTime = `within ${timeoutMs / 1_000} s`;
    if (state.status !== null) endBody();
    else if (state.controller) settle(`no response ${inTime}`, "webhook timeout");
    else settle(`no connection ${inTime}, DNS lookup included`, "host timeout");
    giveUp();
  }

  // What has arrived while this process was busy or stood still is read first: timers come before it.
  const timer = setTimeout(() => setImmediate(expire), timeoutMs);

  /** The status decides, whatever becomes of the rest of the response. */
  function endBody(): void {
    settle(null, null);
  }

  function withdraw(controller: Dispatcher.DispatchController): void {
    state.settled = true;
    clearTimeout(timer);
    controller.abort(new Error("withdrawn"));
    gate?.withdrawn();
  }

  const giveUp = client.dispatch({
    options: {
      origin: request.origin,
      path: request.path,
      method: "POST",
      headers: request.headers,
      body: request.body,
    },
    handler: {
      onRequestStart(controller) {
        state.controller = controller;
        // Settled while it waited for a connection: it must not be sent any more.
        if (state.settled) controller.abort(new Error("time-out"));
        else if (gate && !gate.maySend()) withdraw(controller);
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
          endBody();
          controller.abort(new Error("response too large"));
        }
      },
      onResponseEnd: endBody,
      onResponseError: (_controller, error) => {
        if (state.status === null)
          settle(describeFault(error), failureOf(error, state.controller !== undefined));
        else endBody();
      },
    },
    onAgain() {
      state.controller = undefined;
    },
  });
}

/** PostgreSQL's text holds no NUL; a cut or binary response shows replacement characters. */
function text(parts: Buffer[]): string {
  return Buffer.concat(parts).toString("utf8").replaceAll("\0", "\uFFFD");
}
