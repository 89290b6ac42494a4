/** The maximum Retry-After that is respected, in milliseconds. Longer values are reduced to it. */
export const MAX_RETRY_AFTER_MS = 3_600_000;

/** The outcome of one POST, to be recorded as an attempt. */
export interface Outcome {
  /** True for any 2xx within the timeout, even if the body is incomplete. */
  delivered: boolean;
  started: Date;
  durationMs: number;
  /** The HTTP status; null without a response. */
  status: number | null;
  /** The error, if the status alone does not explain the outcome. Never contains a URL or a secret. */
  error: string | null;
  /** The first 1 KiB of the response body, as text. */
  responseStart: string | null;
  /** The delay requested by the receiver's Retry-After, in milliseconds; at most MAX_RETRY_AFTER_MS. */
  retryAfterMs: number | null;
  /** The part that failed, if there was no response; otherwise null. */
  failure: FailureOf | null;
}

/**
 * The part that failed without a response: the connection to the host or, once the request was sent, the webhook;
 * each by an error or by a timeout. `ours` is a failure inside this service.
 */
export type FailureOf = "host" | "host timeout" | "webhook" | "webhook timeout" | "ours";

/** Whether a status counts as delivered: any 2xx. Redirects and 410 do not. */
export function isDelivered(status: number): boolean {
  return status >= 200 && status <= 299;
}

/**
 * Parses a Retry-After header. Returns the delay in milliseconds, or null if there is none.
 *
 * @param header seconds or an HTTP date (RFC 9110, 10.2.3)
 */
export function parseRetryAfter(header: string | undefined, now: number): number | null {
  if (header === undefined) return null;
  const text = header.trim();
  const ms = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - now;
  return Number.isFinite(ms) && ms > 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : null;
}

/** Messages for connection errors, by error code of Node, OpenSSL or undici. */
const FAULTS: Record<string, string> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection reset",
  EPIPE: "connection reset",
  UND_ERR_SOCKET: "connection closed before the response was complete",
  UND_ERR_CONNECT_TIMEOUT: "connection timed out",
  ETIMEDOUT: "connection timed out",
  EHOSTUNREACH: "host unreachable",
  ENETUNREACH: "network unreachable",
  CERT_HAS_EXPIRED: "certificate has expired",
  DEPTH_ZERO_SELF_SIGNED_CERT: "certificate is self-signed",
  SELF_SIGNED_CERT_IN_CHAIN: "certificate chain ends in an unknown authority",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "certificate is from an unknown authority",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "certificate is from an unknown authority",
  CERT_SIGNATURE_FAILURE: "certificate has an invalid signature",
  CERT_NOT_YET_VALID: "certificate is not valid yet",
  ERR_TLS_CERT_ALTNAME_INVALID: "certificate is for another host",
  UND_ERR_HEADERS_OVERFLOW: "response headers too large",
  HPE_HEADER_OVERFLOW: "response headers too large",
};

/** Describes a connection error in one line for the attempt record. */
export function describeFault(error: Error): string {
  const code = faultCode(error);
  if (code === "ADDRESS_REFUSED") return `address refused: ${error.message}`;
  if (code === "LOOKUP_FAILED") return error.message;
  if (/^(HPE_|HTTPParserError)/.test(code) && !FAULTS[code]) return `response is not HTTP (${code})`;
  const words = FAULTS[code];
  return words ? `${words} (${code})` : `request failed (${code})`;
}

/** The part that caused an error. @param sent whether the request was sent over a connection */
export function failureOf(error: Error, sent: boolean): FailureOf {
  if (sent) return "webhook";
  const code = faultCode(error);
  if (code === "UND_ERR_CONNECT_TIMEOUT" || code === "ETIMEDOUT" || code === "LOOKUP_FAILED")
    return "host timeout";
  return "host";
}

/** Error codes for an address family that this machine has no route for. */
const NO_ROUTE = new Set(["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"]);

function faultCode(error: Error): string {
  if (!(error instanceof AggregateError)) return (error as NodeJS.ErrnoException).code ?? error.name;
  // Happy Eyeballs fails with one error per address. Report the first address that this machine has a route for.
  const codes = error.errors.map(faultCode);
  return codes.find((code) => !NO_ROUTE.has(code)) ?? (codes[0] as string);
}
