/** The longest Retry-After that is honoured, in milliseconds. */
export const MAX_RETRY_AFTER_MS = 3_600_000;

/** What came of one POST, ready to be recorded as an attempt. */
export interface Outcome {
  /** Any 2xx within the time-out; what becomes of its body changes nothing. */
  delivered: boolean;
  started: Date;
  durationMs: number;
  /** The HTTP status, when a response came. */
  status: number | null;
  /** What went wrong, when it was not the status alone; never holds a URL or a secret. */
  error: string | null;
  /** The first 1 KiB of the response, as text. */
  responseStart: string | null;
  /** How long the receiver asked to be left alone, at most an hour. */
  retryAfterMs: number | null;
  /** Who failed when no response came; null when one did. */
  failure: FailureOf | null;
}

/**
 * What failed without a response: the connection to the host or, once the request was sent, the webhook; and whether by
 * letting the time run out. `ours` stands for what no receiver can help.
 */
export type FailureOf = "host" | "host timeout" | "webhook" | "webhook timeout" | "ours";

/** Whether a status counts as delivered: 2xx and nothing else, redirects and 410 included in the else. */
export function isDelivered(status: number): boolean {
  return status >= 200 && status <= 299;
}

/**
 * The wait a Retry-After header asks for, in milliseconds, or null where there is none to honour.
 *
 * @param header seconds or an HTTP date (RFC 9110, 10.2.3)
 */
export function parseRetryAfter(header: string | undefined, now: number): number | null {
  if (header === undefined) return null;
  const text = header.trim();
  const ms = /^\d+$/.test(text) ? Number(text) * 1_000 : Date.parse(text) - now;
  return Number.isFinite(ms) && ms > 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : null;
}

/** The faults of a connection in words, by the code that Node, OpenSSL or undici gives. */
const FAULTS: Record<string, string> = {
  ECONNREFUSED: "connection refused",
  ECONNRESET: "connection reset",
  EPIPE: "connection reset",
  UND_ERR_SOCKET: "connection closed before the response was complete",
  UND_ERR_CONNECT_TIMEOUT: "no connection in time",
  ETIMEDOUT: "no connection in time",
  EHOSTUNREACH: "host unreachable",
  ENETUNREACH: "network unreachable",
  CERT_HAS_EXPIRED: "certificate has expired",
  DEPTH_ZERO_SELF_SIGNED_CERT: "certificate is self-signed",
  SELF_SIGNED_CERT_IN_CHAIN: "certificate chain ends in an unknown authority",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "certificate is from an unknown authority",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "certificate is from an unknown authority",
  CERT_SIGNATURE_FAILURE: "certificate's signature is wrong",
  CERT_NOT_YET_VALID: "certificate is not valid yet",
  ERR_TLS_CERT_ALTNAME_INVALID: "certificate is for another host",
  UND_ERR_HEADERS_OVERFLOW: "response headers too large",
  HPE_HEADER_OVERFLOW: "response headers too large",
};

/** A connection's error as one line for the attempt record. */
export function describeFault(error: Error): string {
  const code = faultCode(error);
  if (code === "ADDRESS_REFUSED") return `address refused: ${error.message}`;
  if (code === "LOOKUP_FAILED") return error.message;
  if (/^(HPE_|HTTPParserError)/.test(code) && !FAULTS[code]) return `response is not HTTP (${code})`;
  const words = FAULTS[code];
  return words ? `${words} (${code})` : `request failed (${code})`;
}

/** Whom an error is charged to. @param sent whether the request had gone over a connection */
export function failureOf(error: Error, sent: boolean): FailureOf {
  if (sent) return "webhook";
  const code = faultCode(error);
  if (code === "UND_ERR_CONNECT_TIMEOUT" || code === "ETIMEDOUT" || code === "LOOKUP_FAILED")
    return "host timeout";
  return "host";
}

/** Codes that say only that this machine has no route for a family of addresses. */
const NO_ROUTE = new Set(["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"]);

function faultCode(error: Error): string {
  if (!(error instanceof AggregateError)) return (error as NodeJS.ErrnoException).code ?? error.name;
  // Happy eyeballs fails with one error an address; the first of an address that could be tried says what happened.
  const codes = error.errors.map(faultCode);
  return codes.find((code) => !NO_ROUTE.has(code)) ?? (codes[0] as string);
}
