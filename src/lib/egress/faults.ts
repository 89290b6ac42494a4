import { getSystemErrorMap } from "node:util";

/** The remedies that several errors share. */
const START_IT = "check that the server runs, and its host and port";
const CHECK_NETWORK = "check the network between this service and the server, firewalls included";
const SEE_LOG = "see the log of the server, and of proxies before it";
const OUR_MACHINE = "the operator of this service must raise the limits of its machine; see its log";
const OUR_FAULT =
  "send the delivery again; if it fails again, report the code to the operator of this service";
const RENEW = "renew the server's certificate";
const REISSUE = "issue a new certificate for the server";
const TRUST =
  "use a certificate of a public authority or, for a webhook, add the authority with SetWebhookRequestSettings";
const SEND_CHAIN = `make the server send its intermediate certificates, ${TRUST}`;
const UNKNOWN = `certificate is from an unknown authority, or the receiver does not send the intermediate certificates; ${SEND_CHAIN}`;
const CHECK_LISTS = "remove the check of revocation lists from the service's OpenSSL configuration";
const SET_CLIENT = "set one that the server accepts with SetWebhookRequestSettings";
const CHECK_TLS = "check the TLS settings and the log of the server";
const CHECK_HTTP = "check that the port of the URL belongs to an HTTPS server, and the server's log";

const CLIENT_CERTIFICATE = `the receiver demands a client certificate, or refuses the webhook's; ${SET_CLIENT}`;
const NO_COMMON_TLS = "the receiver only supports TLS 1.1 or older; enable TLS 1.2 or 1.3 on the server";
const NO_TLS =
  "this port does not speak TLS; it may speak plain HTTP: enable TLS, or use the port that has it";
const ONLY_HTTP2 =
  "the receiver only speaks HTTP/2; this service sends HTTP/1.1: enable HTTP/1.1 on the server";
const CLOSED = "connection closed before the response was complete";

/** Causes and remedies by the code of an error in the verification of a certificate, as Node names OpenSSL's X509_V_ERR codes. */
const CERTIFICATE_FAULTS: Record<string, string> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: `certificate is self-signed; ${TRUST}`,
  SELF_SIGNED_CERT_IN_CHAIN: `certificate chain ends in an unknown authority; ${TRUST}`,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNKNOWN,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNKNOWN,
  UNABLE_TO_GET_ISSUER_CERT: `certificate chain is incomplete, or ends in an unknown authority; ${SEND_CHAIN}`,
  UNABLE_TO_DECRYPT_CERT_SIGNATURE: `signature of a certificate cannot be read; ${REISSUE}`,
  UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY: `public key of a certificate's authority cannot be read; ${REISSUE}`,
  CERT_SIGNATURE_FAILURE: `signature of a certificate is invalid; ${REISSUE}, and check that its chain belongs to it`,
  CERT_NOT_YET_VALID: "certificate is not yet valid; check the clocks of both machines, or wait",
  CERT_HAS_EXPIRED: `certificate has expired; ${RENEW}, and see that the chain has no expired one`,
  ERROR_IN_CERT_NOT_BEFORE_FIELD: `start date of a certificate is invalid; ${REISSUE}`,
  ERROR_IN_CERT_NOT_AFTER_FIELD: `end date of a certificate is invalid; ${REISSUE}`,
  CERT_CHAIN_TOO_LONG: "certificate chain is too long; remove certificates that the chain does not need",
  CERT_REVOKED: `certificate is revoked; ${RENEW}`,
  INVALID_CA: `certificate was issued by a certificate that is no authority; ${REISSUE}`,
  PATH_LENGTH_EXCEEDED: `certificate chain is longer than one of its authorities allows; ${REISSUE}`,
  INVALID_PURPOSE: `certificate is not for servers; ${REISSUE}, for the purpose serverAuth`,
  CERT_UNTRUSTED: `certificate's authority is not trusted for servers; ${TRUST}`,
  CERT_REJECTED: `certificate's authority rejects its use for servers; ${REISSUE}`,
  HOSTNAME_MISMATCH: `certificate is for another host; ${REISSUE} that names the URL's host`,
  ERR_TLS_CERT_ALTNAME_INVALID: `certificate is for another host; ${REISSUE} that names the URL's host`,
  UNABLE_TO_GET_CRL: `revocation list of a certificate's authority is missing; ${CHECK_LISTS}`,
  UNABLE_TO_DECRYPT_CRL_SIGNATURE: `signature of a revocation list cannot be read; ${CHECK_LISTS}`,
  CRL_SIGNATURE_FAILURE: `signature of a revocation list is invalid; ${CHECK_LISTS}`,
  CRL_NOT_YET_VALID: `revocation list is not yet valid; ${CHECK_LISTS}`,
  CRL_HAS_EXPIRED: `revocation list has expired; ${CHECK_LISTS}`,
  ERROR_IN_CRL_LAST_UPDATE_FIELD: `date of a revocation list is invalid; ${CHECK_LISTS}`,
  ERROR_IN_CRL_NEXT_UPDATE_FIELD: `date of a revocation list is invalid; ${CHECK_LISTS}`,
  OUT_OF_MEM: `this service had no memory to verify the certificate; ${OUR_MACHINE}`,
};

/** Causes and remedies of other connection errors, by error code of Node, OpenSSL or undici. */
export const FAULTS: Record<string, string> = {
  ...CERTIFICATE_FAULTS,
  ECONNREFUSED: `connection refused; ${START_IT}`,
  ECONNRESET: `connection reset; ${SEE_LOG}`,
  EPIPE: `connection reset; ${SEE_LOG}`,
  ECONNABORTED: `connection reset; ${SEE_LOG}`,
  UND_ERR_SOCKET: `${CLOSED}; ${SEE_LOG}`,
  UND_ERR_CONNECT_TIMEOUT: `connection timed out; ${START_IT}, and that firewalls let this service in`,
  ETIMEDOUT: `connection timed out; ${START_IT}, and that firewalls let this service in`,
  EHOSTUNREACH: `host unreachable; ${CHECK_NETWORK}`,
  EHOSTDOWN: `host unreachable; ${CHECK_NETWORK}`,
  ENETUNREACH: `network unreachable; ${CHECK_NETWORK}`,
  ENETDOWN: `network unreachable; ${CHECK_NETWORK}`,
  EACCES: `this service's machine forbids the connection; ${CHECK_NETWORK}`,
  EPERM: `this service's machine forbids the connection; ${CHECK_NETWORK}`,
  EMFILE: `this service has too many open files; ${OUR_MACHINE}`,
  ENFILE: `this service's machine has too many open files; ${OUR_MACHINE}`,
  ENOMEM: `this service has no memory left; ${OUR_MACHINE}`,
  ENOBUFS: `this service's machine has no buffers left; ${OUR_MACHINE}`,
  EADDRNOTAVAIL: `this service's machine has no free local port or address; ${OUR_MACHINE}`,
  ERR_SSL_WRONG_VERSION_NUMBER: NO_TLS,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: NO_TLS,
  ERR_SSL_HTTP_REQUEST: NO_TLS,
  ERR_SSL_UNSUPPORTED_PROTOCOL: NO_COMMON_TLS,
  ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION: NO_COMMON_TLS,
  ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL: ONLY_HTTP2,
  HTTP2_ONLY: ONLY_HTTP2,
  "ERR_SSL_SSL/TLS_ALERT_HANDSHAKE_FAILURE":
    "TLS handshake refused: the receiver shares no cipher suite with this service, or demands a client certificate; enable a cipher suite with forward secrecy, or set a client certificate with SetWebhookRequestSettings",
  ERR_SSL_TLSV1_ALERT_INSUFFICIENT_SECURITY:
    "TLS handshake refused: the receiver demands stronger cipher suites; enable one of TLS 1.3 on the server",
  ERR_SSL_TLSV13_ALERT_CERTIFICATE_REQUIRED: CLIENT_CERTIFICATE,
  "ERR_SSL_SSL/TLS_ALERT_BAD_CERTIFICATE": CLIENT_CERTIFICATE,
  "ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_UNKNOWN": CLIENT_CERTIFICATE,
  "ERR_SSL_SSL/TLS_ALERT_UNSUPPORTED_CERTIFICATE": CLIENT_CERTIFICATE,
  "ERR_SSL_SSL/TLS_ALERT_NO_CERTIFICATE": CLIENT_CERTIFICATE,
  ERR_SSL_TLSV1_ALERT_ACCESS_DENIED: CLIENT_CERTIFICATE,
  "ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_EXPIRED": `the receiver refuses the webhook's client certificate as expired; ${SET_CLIENT}`,
  "ERR_SSL_SSL/TLS_ALERT_CERTIFICATE_REVOKED": `the receiver refuses the webhook's client certificate as revoked; ${SET_CLIENT}`,
  ERR_SSL_TLSV1_ALERT_UNKNOWN_CA: `the receiver does not know the authority of the webhook's client certificate; ${SET_CLIENT}`,
  ERR_SSL_TLSV1_UNRECOGNIZED_NAME:
    "TLS handshake refused: the receiver has no certificate for this host name; add one for the URL's host",
  ERR_SSL_TLSV1_ALERT_INTERNAL_ERROR: `TLS handshake refused: internal error of the receiver, often a missing certificate for this host name; ${CHECK_TLS}`,
  HPE_INVALID_CONSTANT: `response is not HTTP; ${CHECK_HTTP}`,
  HPE_INVALID_STATUS: `response is not HTTP: its status line has no valid version and status; ${CHECK_HTTP}`,
  UND_ERR_HEADERS_OVERFLOW: "response headers too large; the server must send less than 64 KiB",
  UND_ERR_RES_EXCEEDED_MAX_SIZE: "response body too large; the server must send at most 64 KiB",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: `${CLOSED}; ${CHECK_HTTP}`,
  UND_ERR_HEADERS_TIMEOUT: `no response in time; ${START_IT}`,
  UND_ERR_BODY_TIMEOUT: `no complete response in time; ${START_IT}`,
};

/** The error codes of causes. The cause of other codes follows from their kind (`causeOfCode`). */
const CODES_OF: Partial<Record<FaultCause, string>> = {
  certificate_expired: "CERT_HAS_EXPIRED",
  certificate_name: "HOSTNAME_MISMATCH ERR_TLS_CERT_ALTNAME_INVALID",
  certificate_untrusted:
    "DEPTH_ZERO_SELF_SIGNED_CERT SELF_SIGNED_CERT_IN_CHAIN UNABLE_TO_VERIFY_LEAF_SIGNATURE UNABLE_TO_GET_ISSUER_CERT_LOCALLY UNABLE_TO_GET_ISSUER_CERT CERT_UNTRUSTED",
  connection_refused: "ECONNREFUSED",
  connection_closed: "ECONNRESET EPIPE ECONNABORTED UND_ERR_SOCKET UND_ERR_RES_CONTENT_LENGTH_MISMATCH",
  connection_timeout: "UND_ERR_CONNECT_TIMEOUT ETIMEDOUT",
  unreachable: "EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN",
  service: "EACCES EPERM EMFILE ENFILE ENOMEM OUT_OF_MEM ENOBUFS EADDRNOTAVAIL",
  tls: "HTTP2_ONLY",
  response_too_large: "UND_ERR_HEADERS_OVERFLOW UND_ERR_RES_EXCEEDED_MAX_SIZE",
  no_response: "UND_ERR_HEADERS_TIMEOUT UND_ERR_BODY_TIMEOUT",
};
const CAUSES = new Map(
  Object.entries(CODES_OF).flatMap(([cause, codes]) =>
    codes.split(" ").map((code) => [code, cause as FaultCause]),
  ),
);

/** The cause of a connection error: a stable name. `service`: this service or its machine. `connection`: any other. */
export type FaultCause =
  | "certificate_expired"
  | "certificate_name"
  | "certificate_untrusted"
  | "certificate"
  | "tls_client_certificate"
  | "tls"
  | "connection_refused"
  | "connection_closed"
  | "connection_timeout"
  | "connection"
  | "unreachable"
  | "dns_not_found"
  | "dns_failed"
  | "address_refused"
  | "proxy"
  | "not_http"
  | "response_too_large"
  | "no_response"
  | "service";

/** The cause by the start of a description without a code. */
const CAUSES_BY_START: readonly (readonly [start: string, cause: FaultCause])[] = [
  ["address refused: ", "address_refused"],
  ["host name does not resolve: ", "dns_not_found"],
  ["host name could not be looked up: ", "dns_failed"],
  ["DNS lookup of ", "dns_failed"],
  ["outbound proxy: ", "proxy"],
  ["the outbound proxy is unavailable: ", "proxy"],
];

/** The cause in a text of `describeFault`; undefined for other texts. */
export function causeOfFault(description: string): FaultCause | undefined {
  const [, byStart] = CAUSES_BY_START.find(([start]) => description.startsWith(start)) ?? [];
  if (byStart) return byStart;
  const code = / \(([A-Za-z][\w/]+)\)$/.exec(description)?.[1];
  return code === undefined ? undefined : causeOfCode(code);
}

function causeOfCode(code: string): FaultCause {
  const known = CAUSES.get(code);
  if (known) return known;
  if (isCertificateFault(code)) return "certificate";
  if (FAULTS[code]?.includes("client certificate")) return "tls_client_certificate";
  if (TLS_CODE.test(code)) return "tls";
  if (PARSER_CODE.test(code)) return "not_http";
  // Codes of the system and of undici are in upper case; the others are names of errors in this service.
  return /^[A-Z0-9_]+$/.test(code) ? "connection" : "service";
}

/** Describes a connection error in one line, usually with its code: `connection refused; check that … (ECONNREFUSED)`. */
export function describeFault(error: Error): string {
  const code = faultCode(error);
  if (code === "ADDRESS_REFUSED") return `address refused: ${error.message}`;
  if (code === "LOOKUP_FAILED" || code === "PROXY_REFUSED" || code === "PROXY_UNAVAILABLE")
    return error.message;
  return `${causeAndRemedy(code, error)} (${code})`;
}

function causeAndRemedy(code: string, error: Error): string {
  // Node creates this ECONNRESET itself if the server closes the connection during the handshake.
  if (code === "ECONNRESET" && error.message.startsWith(CLOSED_IN_HANDSHAKE))
    return `the receiver closed the connection during the TLS handshake; ${CHECK_TLS}`;
  const known = FAULTS[code];
  if (known) return known;
  // Node names only some of OpenSSL's codes. OpenSSL's message for the others names no secret.
  if (isCertificateFault(code)) return `certificate cannot be verified: ${error.message}; ${REISSUE}`;
  if (TLS_CODE.test(code)) return `TLS error: ${tlsReason(error)}; ${CHECK_TLS}`;
  if (PARSER_CODE.test(code)) return `response is not HTTP${parserReason(error)}; ${CHECK_HTTP}`;
  const system = systemMessages().get(code);
  if (system) return `${system}; ${CHECK_NETWORK}`;
  return `this service failed to send the request; ${OUR_FAULT}`;
}

/** The start of Node's message for a connection that ended before TLS was established. */
const CLOSED_IN_HANDSHAKE = "Client network socket disconnected before secure TLS connection";

/** Error codes for certificates that are not in CERTIFICATE_FAULTS. Node calls most of OpenSSL's UNSPECIFIED. */
const OTHER_CERTIFICATE_CODE = /^(UNSPECIFIED$|CERT_|CRL_|EE_KEY_|CA_|UNABLE_TO_)/;
const isCertificateFault = (code: string) => code in CERTIFICATE_FAULTS || OTHER_CERTIFICATE_CODE.test(code);

/** Error codes of a TLS handshake, of OpenSSL or Node. */
const TLS_CODE = /^ERR_(SSL|OSSL|TLS|CRYPTO)_/;
const PARSER_CODE = /^(HPE_|HTTPParserError$)/;

/** OpenSSL's reason for an error, such as `tlsv1 alert decode error`. */
function tlsReason(error: Error): string {
  const { reason } = error as { reason?: unknown };
  return typeof reason === "string" ? reason : "the handshake failed";
}

/** The reason of undici's parser, such as `: Invalid status code`. */
function parserReason({ message }: Error): string {
  const [, reason] = /^Response does not match the HTTP\/1.1 protocol \((.*)\)$/.exec(message) ?? [];
  return reason ? `: ${reason}` : "";
}

/** The messages of the system's errors, by code: `broken pipe`. */
function systemMessages(): Map<string, string> {
  return new Map(getSystemErrorMap().values());
}

/** Whether TLS failed with an error of OpenSSL or Node. A connection that closes during the handshake does not count. */
export const isTlsFault = (error: Error) => {
  const code = faultCode(error);
  return TLS_CODE.test(code) || isCertificateFault(code);
};

/** Error codes for an address family that this machine has no route for. */
const NO_ROUTE = new Set(["ENETUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"]);

/** The code of a connection error, or the error's name if it has no code. */
export function faultCode(error: Error): string {
  if (!(error instanceof AggregateError)) return (error as NodeJS.ErrnoException).code ?? error.name;
  // Happy Eyeballs fails with one error per address. Report the first address that this machine has a route for.
  const codes = error.errors.map(faultCode);
  return codes.find((code) => !NO_ROUTE.has(code)) ?? (codes[0] as string);
}
