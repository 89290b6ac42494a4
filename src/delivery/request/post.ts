import type { Dispatcher } from "undici";
import type { Connections } from "../http/connections.ts";
import type { TlsIdentity } from "../http/tls-identity.ts";
import { ProxyUnavailableError } from "../proxy/proxy-error.ts";
import {
  describeFault,
  describeStatus,
  type FailureOf,
  failureOf,
  isDelivered,
  type Outcome,
  parseRetryAfter,
} from "./outcome.ts";

/** The size of the response excerpt stored with the attempt, in bytes. */
const RESPONSE_EXCERPT_BYTES = 1_024;

/** The size of the names and values of response headers stored with a failed attempt, in bytes. */
const MAX_HEADERS_BYTES = 2_048;

/** An attempt that its timer ended so much too late, in milliseconds, ran while this process stood still. */
const STOOD_STILL_MS = 1_000;

/** Decides whether a request that has its connection is sent after all. */
export interface Gate {
  maySend(): boolean;
  /** Called when the request needs a new connection. */
  opens?(): void;
  /** Called if the request was not sent because `maySend` returned false, or because the outbound proxy is away. */
  withdrawn(): void;
}

/**
 * Makes one POST and reports its outcome when the response is complete, cut off or late.
 *
 * Uses callbacks, here and for the record of a delivery, because a promise costs a tenth of a delivery's processing
 * time.
 *
 * @param timeoutMs the timeout of the whole attempt: connection, request, response headers and body
 * @param outcome called once, unless the request is withdrawn
 * @param request `signed` is the recorded start of the attempt; now unless given
 * @param gate asked when the connection is established, right before the request is sent
 */
export function post(
  client: Pick<Connections, "dispatch">,
  request: {
    origin: string;
    path: string;
    headers: string[];
    body: string;
    signed?: Date;
    tls?: TlsIdentity;
  },
  timeoutMs: number,
  outcome: (outcome: Outcome) => void,
  gate?: Gate,
): void {
  const startedAt = performance.now();
  const state = {
    started: request.signed ?? new Date(),
    settled: false,
    status: null as number | null,
    headers: null as string | null,
    retryAfterMs: null as number | null,
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
      delivered: state.status !== null && isDelivered(state.status),
      started: state.started,
      durationMs,
      status: state.status,
      error,
      responseStart: state.keptBytes > 0 ? text(state.kept) : null,
      responseHeaders: state.headers,
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

  /** From the response headers on, the status decides, even if the body is incomplete. */
  function endBody(): void {
    settle(describeStatus(state.status as number, state.retryAfterMs), null);
  }

  function withdraw(from: Gate): void {
    if (state.settled) return;
    state.settled = true;
    clearTimeout(timer);
    from.withdrawn();
  }

  const giveUp = client.dispatch({
    options: {
      origin: request.origin,
      path: request.path,
      method: "POST",
      headers: request.headers,
      body: request.body,
    },
    tls: request.tls,
    onOpen: () => gate?.opens?.(),
    handler: {
      onRequestStart(controller) {
        state.controller = controller;
        // The timeout expired while waiting for a connection: do not send.
        if (state.settled) controller.abort(new Error("time-out"));
        else if (gate && !gate.maySend()) {
          withdraw(gate);
          controller.abort(new Error("withdrawn"));
        }
      },
      onResponseStart(_controller, status, headers) {
        if (status < 200) return;
        state.status = status;
        if (!isDelivered(status)) state.headers = headersText(headers);
        const retryAfter = headers["retry-after"];
        state.retryAfterMs = parseRetryAfter(
          Array.isArray(retryAfter) ? retryAfter[0] : retryAfter,
          Date.now(),
        );
      },
      onResponseData(_controller, chunk) {
        if (state.keptBytes < RESPONSE_EXCERPT_BYTES) {
          const part = Buffer.from(chunk.subarray(0, RESPONSE_EXCERPT_BYTES - state.keptBytes));
          state.kept.push(part);
          state.keptBytes += part.length;
        }
      },
      onResponseEnd: endBody,
      onResponseError: (_controller, error) => {
        if (gate && error instanceof ProxyUnavailableError) withdraw(gate);
        else if (state.status === null)
          settle(
            describeFault(error),
            failureOf(error, state.controller !== undefined, request.tls !== undefined),
          );
        else endBody();
      },
    },
    onAgain() {
      state.controller = undefined;
    },
  });
}

/** PostgreSQL's text type cannot store NUL. Invalid UTF-8 becomes replacement characters. */
function text(parts: Buffer[]): string {
  return Buffer.concat(parts).toString("utf8").replaceAll("\0", "\uFFFD");
}

/** The first headers as JSON, without cookies, which are credentials. */
function headersText(headers: Record<string, string | string[] | undefined>): string | null {
  const kept: string[] = [];
  let left = MAX_HEADERS_BYTES;
  for (const [name, values] of Object.entries(headers)) {
    if (name === "set-cookie") continue;
    for (const value of [values ?? []].flat()) {
      const bytes = name.length + value.length;
      if (bytes > left) continue;
      left -= bytes;
      kept.push(name, value.replaceAll("\0", "\uFFFD"));
    }
  }
  return kept.length > 0 ? JSON.stringify(kept) : null;
}
