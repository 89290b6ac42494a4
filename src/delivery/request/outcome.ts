import { AddressRefusedError, faultCode, isTlsFault, ProxyRefusedError } from "../../lib/egress/index.ts";
import type { AttemptOutcome, ReceiverWish } from "../../queue/index.ts";

/** The maximum Retry-After that is respected, in milliseconds. Longer values are reduced to it. */
export const MAX_RETRY_AFTER_MS = 3_600_000;

/** The outcome of one POST, to be recorded as an attempt. */
export interface Outcome extends AttemptOutcome {
  /** The part that failed, if there was no response; otherwise null. */
  failure: FailureOf | null;
  /** What the receiver says about how many requests it takes; left out if it says nothing. */
  wish?: Wish | undefined;
}

/** What a response says about how many requests its receiver takes. */
export interface Wish extends ReceiverWish {
  /** The number of requests that it accepts until its quota is renewed; null if it says nothing. */
  remaining: number | null;
}

/** The fields of an outcome without a response. */
export const NO_RESPONSE = {
  delivered: false,
  status: null,
  responseStart: null,
  responseHeaders: null,
  timing: null,
  retryAfterMs: null,
} satisfies Partial<Outcome>;

/**
 * The part that failed without a response: the connection to the host or, once the request was sent, the webhook;
 * each by an error or by a timeout. `tls`: the handshake with the webhook's own certificate or authorities, which says
 * nothing about other webhooks of the host. `refused`: the address guard of customers allows no connection to the host, which others may
 * reach. `token endpoint`: no access token could be fetched, so that nothing was sent.
 * `proxy`: the outbound proxy opened no connection, which says nothing about the receiver. `ours`: a failure inside
 * this service, or an unavailable outbound proxy.
 */
export type FailureOf =
  | "host"
  | "host timeout"
  | "webhook"
  | "webhook timeout"
  | "tls"
  | "refused"
  | "token endpoint"
  | "proxy"
  | "ours";

/** Whether the receiver may have got the request. */
export function wasSent({ status, failure }: Pick<Outcome, "status" | "failure">): boolean {
  return status !== null || failure === "webhook" || failure === "webhook timeout";
}

/** Whether a status counts as delivered: any 2xx. Redirects and 410 do not. */
export function isDelivered(status: number): boolean {
  return status >= 200 && status <= 299;
}

/**
 * Explains the status of an attempt; null if delivered, or if the status needs no explanation.
 *
 * @param retryAfterMs as parsed by parseRetryAfter
 */
export function describeStatus(status: number, retryAfterMs: number | null): string | null {
  if (isDelivered(status)) return null;
  if (status === 101)
    return "the receiver sent 101 Switching Protocols, which the request did not ask for; have it answer with another status";
  if (status >= 300 && status <= 399)
    return "redirects are not followed; register the URL that the receiver redirects to";
  if (retryAfterMs === null) return null;
  const longest = retryAfterMs === MAX_RETRY_AFTER_MS ? ", the maximum" : "";
  return `Retry-After: ${Math.ceil(retryAfterMs / 1_000)} s${longest}`;
}

/**
 * Parses a Retry-After header. Returns the delay in milliseconds, at most MAX_RETRY_AFTER_MS, or null if the header is missing, invalid
 * or not in the future.
 *
 * @param header seconds, also with a fraction, or an HTTP date (RFC 9110, 10.2.3)
 * @param now the time of the response, by the clock of the receiver if it names it, in milliseconds since 1970
 */
export function parseRetryAfter(header: string | undefined, now: number): number | null {
  if (header === undefined) return null;
  const text = header.trim();
  let ms = Number.NaN;
  if (/^\d+(\.\d+)?$/.test(text)) ms = Math.ceil(Number(text) * 1_000);
  // An HTTP date has letters. Without this condition, Date.parse would read malformed numbers as months, days or years.
  // HTTP dates are in GMT; one of their forms does not say so.
  else if (/[a-z]/i.test(text))
    ms = Date.parse(/([A-Z]|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text} GMT`) - now;
  return ms > 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : null;
}

/**
 * Returns the part that failed, for an error without a response.
 *
 * @param sent whether the request was sent over a connection
 * @param hasIdentity whether the webhook has its own certificate or authorities
 */
export function failureOf(error: Error, sent: boolean, hasIdentity = false): FailureOf {
  if (sent) return "webhook";
  if (error instanceof ProxyRefusedError) return error.failure;
  if (error instanceof AddressRefusedError && error.isOfSome) return "refused";
  const code = faultCode(error);
  if (code === "PROXY_UNAVAILABLE") return "ours";
  if (hasIdentity && isTlsFault(error)) return "tls";
  if (code === "UND_ERR_CONNECT_TIMEOUT" || code === "ETIMEDOUT" || code === "LOOKUP_FAILED")
    return "host timeout";
  return "host";
}
