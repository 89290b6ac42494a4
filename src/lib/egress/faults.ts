/** The message for a server that supports neither TLS 1.2 nor TLS 1.3. */
const NO_COMMON_TLS = "the receiver only supports TLS 1.1 or older; TLS 1.2 or 1.3 is required";
/** The message for a server that demands a client certificate, or refuses the one it got. */
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
 * Messages for responses with status 100 or 101, which the request did not ask for, by undici's message. undici closes the
 * connection with the code UND_ERR_SOCKET, so only its message identifies them. An unknown message falls back to FAULTS.
 */
const UNREQUESTED: Record<string, string> = {
  "bad response": "the receiver sent 100 Continue, which the request did not ask for",
  "bad upgrade": "the receiver sent 101 Switching Protocols, which the request did not ask for",
};

/** Describes a connection error in one line, usually with its code: `connection refused (ECONNREFUSED)`. */
export function describeFault(error: Error): string {
  const code = faultCode(error);
  if (code === "ADDRESS_REFUSED") return `address refused: ${error.message}`;
  if (code === "LOOKUP_FAILED" || code === "PROXY_REFUSED" || code === "PROXY_UNAVAILABLE")
    return error.message;
  if (/^(HPE_|HTTPParserError)/.test(code) && !FAULTS[code]) return `response is not HTTP (${code})`;
  // Node creates this ECONNRESET itself if the server closes the connection during the handshake.
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

/** Certificate error codes for which OpenSSL's message is shown, such as `certificate has expired`. */
const CERTIFICATE_CODE = /^(CERT_|EE_KEY_|CA_MD_)/;

/** The start of Node's message for a connection that ended before TLS was established. */
const CLOSED_IN_HANDSHAKE = "Client network socket disconnected before secure TLS connection";

/** OpenSSL's reason for an error, such as `tlsv1 alert decode error`. */
function tlsReason(error: Error): string {
  const { reason } = error as { reason?: unknown };
  return typeof reason === "string" ? reason : "the handshake failed";
}

/** Error codes of a TLS handshake, of OpenSSL or Node. */
const TLS_CODE = /^(ERR_(SSL|OSSL|TLS)_|CERT_|UNABLE_TO_|EE_KEY_|CA_MD_|DEPTH_ZERO_|SELF_SIGNED_)/;

/** Whether TLS failed with an error of OpenSSL or Node. A connection that closes during the handshake does not count. */
export const isTlsFault = (error: Error) => TLS_CODE.test(faultCode(error));

/** Error codes for an address family that this machine has no route for. */
const NO_ROUTE = new Set(["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"]);

/** The code of a connection error, or the error's name if it has no code. */
export function faultCode(error: Error): string {
  if (!(error instanceof AggregateError)) return (error as NodeJS.ErrnoException).code ?? error.name;
  // Happy Eyeballs fails with one error per address. Report the first address that this machine has a route for.
  const codes = error.errors.map(faultCode);
  return codes.find((code) => !NO_ROUTE.has(code)) ?? (codes[0] as string);
}
