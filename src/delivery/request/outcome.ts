import { ProxyRefusedError } from "../../lib/egress/proxy-error.ts";

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
  /** The error without a response, or what the status alone does not say. Never contains a URL or a secret. */
  error: string | null;
  /** The first 1 KiB of the response body, as text. */
  responseStart: string | null;
  /** The first response headers, unless delivered: JSON, an array of names and values in turn. */
  responseHeaders: string | null;
  /** The delay requested by the receiver's Retry-After, in milliseconds; at most MAX_RETRY_AFTER_MS. */
  retryAfterMs: number | null;
  /** The part that failed, if there was no response; otherwise null. */
  failure: FailureOf | null;
}

/** The outcome of an attempt as long as there is no response. */
export const NO_RESPONSE = {
  delivered: false,
  status: null,
  responseStart: null,
  responseHeaders: null,
  retryAfterMs: null,
} satisfies Partial<Outcome>;

/**
 * The part that failed without a response: the connection to the host or, once the request was sent, the webhook;
 * each by an error or by a timeout. `tls`: the handshake with the webhook's own certificate or authorities, which says
 * nothing about other webhooks of the host. `token endpoint`: no access token could be fetched, so that nothing was sent.
 * `proxy`: the outbound proxy opened no connection, which says nothing about the receiver. `ours` is a failure inside
 * this service.
 */
export type FailureOf =
  | "host"
  | "host timeout"
  | "webhook"
  | "webhook timeout"
  | "tls"
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
 * Explains the status of a failed attempt; null if the status says all.
 *
 * @param retryAfterMs as parsed by parseRetryAfter
 */
export function describeStatus(status: number, retryAfterMs: number | null): string | null {
  if (isDelivered(status)) return null;
  if (status >= 300 && status <= 399) return "redirects are not followed";
  if (retryAfterMs === null) return null;
  const longest = retryAfterMs === MAX_RETRY_AFTER_MS ? ", the maximum" : "";
  return `Retry-After: ${Math.ceil(retryAfterMs / 1_000)} s${longest}`;
}

/**
 * Parses a Retry-After header. Returns the delay in milliseconds, or null if there is none.
 *
 * @param header seconds, also with a fraction, or an HTTP date (RFC 9110, 10.2.3)
 */
export function parseRetryAfter(header: string | undefined, now: number): number | null {
  if (header === undefined) return null;
  const text = header.trim();
  let ms = Number.NaN;
  if (/^\d+(\.\d+)?$/.test(text)) ms = Math.ceil(Number(text) * 1_000);
  // Without a letter, Date.parse takes numbers for months, days or years: 35.9 would be September 2035.
  else if (/[a-z]/i.test(text)) ms = Date.parse(text) - now;
  return Number.isFinite(ms) && ms > 0 ? Math.min(ms, MAX_RETRY_AFTER_MS) : null;
}

/** The error of a receiver that supports no TLS version of this service. */
const NO_COMMON_TLS = "the receiver only supports TLS 1.1 or older; TLS 1.2 or 1.3 is required";
/** The error of a receiver that demands another client certificate. */
const CLIENT_CERTIFICATE =
  "the receiver demands a client certificate, or refuses the webhook's; set it with SetWebhookRequestSettings";

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
  DEPTH_ZERO_SELF_SIGNED_CERT: "certificate is self-signed",
  SELF_SIGNED_CERT_IN_CHAIN: "certificate chain ends in an unknown authority",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    "certificate is from an unknown authority, or the receiver does not send the intermediate certificates",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "certificate is from an unknown authority",
  ERR_TLS_CERT_ALTNAME_INVALID: "certificate is for another host",
  ERR_SSL_WRONG_VERSION_NUMBER: "this port does not speak TLS; it may speak plain HTTP",
  ERR_SSL_PACKET_LENGTH_TOO_LONG: "this port does not speak TLS; it may speak plain HTTP",
  ERR_SSL_UNSUPPORTED_PROTOCOL: NO_COMMON_TLS,
  ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION: NO_COMMON_TLS,
  "ERR_SSL_SSL/TLS_ALERT_HANDSHAKE_FAILURE":
    "TLS handshake refused: the receiver shares no cipher suite with this service, or demands a client certificate",
  ERR_SSL_TLSV1_ALERT_INSUFFICIENT_SECURITY:
    "TLS handshake refused: the receiver demands stronger cipher suites",
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: CLIENT_CERTIFICATE,
  "ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE": CLIENT_CERTIFICATE,
  "ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_UNKNOWN": CLIENT_CERTIFICATE,
  "ERR_SSL_SSL/TLS_ALERT_UNSUPPORTED_CERTIFICATE": CLIENT_CERTIFICATE,
  "ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_EXPIRED":
    "the receiver refuses the webhook's client certificate as expired",
  "ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_REVOKED":
    "the receiver refuses the webhook's client certificate as revoked",
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA:
    "the receiver does not know the authority of the webhook's client certificate",
  ERR_SSL_TLSV1_UNRECOGNIZED_NAME:
    "TLS handshake refused: the receiver has no certificate for this host name",
  ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR:
    "TLS handshake refused: internal error of the receiver, often a missing certificate for this host name",
  UND_ERR_HEADERS_OVERFLOW: "response headers too large",
  HPE_HEADER_OVERFLOW: "response headers too large",
};

/**
 * Errors of responses that the request did not ask for, by undici's message. undici ends the connection on them, with the
 * code UND_ERR_SOCKET; its message is the only evidence. An unknown message falls back to FAULTS.
 */
const UNREQUESTED: Record<string, string> = {
  "bad response": "the receiver sent 100 Continue, which the request did not ask for",
  "bad upgrade": "the receiver sent 101 Switching Protocols, which the request did not ask for",
};

/** Describes a connection error in one line for the attempt record. */
export function describeFault(error: Error): string {
  const code = faultCode(error);
  if (code === "ADDRESS_REFUSED") return `address refused: ${error.message}`;
  if (code === "LOOKUP_FAILED" || code === "PROXY_REFUSED" || code === "PROXY_UNAVAILABLE")
    return error.message;
  if (/^(HPE_|HTTPParserError)/.test(code) && !FAULTS[code]) return `response is not HTTP (${code})`;
  // Node's own error, without a system call, if the receiver closed the connection amid the handshake.
  if (code === "ECONNRESET" && error.message.startsWith(CLOSED_IN_HANDSHAKE))
    return `the receiver closed the connection during the TLS handshake (${code})`;
  const unrequested = code === "UND_ERR_SOCKET" ? UNREQUESTED[error.message] : undefined;
  const words =
    unrequested ??
    FAULTS[code] ??
    (code.startsWith("ERR_SSL_") ? `TLS error: ${tlsReason(error)}` : undefined) ??
    (CERTIFICATE_CODE.test(code) ? error.message : undefined);
  return words ? `${words} (${code})` : `request failed (${code})`;
}

/** Error codes of a certificate that OpenSSL's own words explain, such as `certificate has expired`. */
const CERTIFICATE_CODE = /^(CERT_|EE_KEY_|CA_MD_)/;

/** The start of Node's message for a connection that ended before TLS was established. */
const CLOSED_IN_HANDSHAKE = "Client network socket disconnected before secure TLS connection";

/** OpenSSL's words for an error, such as `tlsv1 alert decode error`. */
function tlsReason(error: Error): string {
  const { reason } = error as { reason?: unknown };
  return typeof reason === "string" ? reason : "the handshake failed";
}

/** Error codes of a TLS handshake, of OpenSSL or Node. */
const TLS_CODE = /^(ERR_(SSL|OSSL|TLS)_|CERT_|UNABLE_TO_|EE_KEY_|CA_MD_|DEPTH_ZERO_|SELF_SIGNED_)/;

/**
 * The part that caused an error.
 *
 * @param sent whether the request was sent over a connection
 * @param hasIdentity whether the webhook has its own certificate or authorities
 */
export function failureOf(error: Error, sent: boolean, hasIdentity = false): FailureOf {
  if (sent) return "webhook";
  if (error instanceof ProxyRefusedError) return error.failure;
  const code = faultCode(error);
  if (code === "PROXY_UNAVAILABLE") return "ours";
  if (hasIdentity && TLS_CODE.test(code)) return "tls";
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
