import type { X509Certificate } from "node:crypto";
import type { TLSSocket } from "node:tls";

/** How the connection of a request was opened, as far as it was. Times are in milliseconds of `performance.now()`. */
export interface ConnectionTrace {
  opened?: number;
  lookedUp?: number;
  connected?: number;
  secured?: number;
  /** The allowed addresses of the host name; not set if a proxy resolves it. */
  addresses?: string[];
  /**
   * The certificate of the server, also if it was not accepted. Its issuers are `issuerCertificate`. Only in a trace that has the field
   * beforehand: to read it takes time.
   */
  certificate?: X509Certificate | undefined;
}

/**
 * The durations of the parts of a request that has ended now, in milliseconds, up to the part in which it ended: the DNS lookup, the
 * connection, TLS, up to the response headers, and the body. None over a connection that was used before.
 *
 * @param answered the time of the response headers, as in a trace; undefined for none
 */
export function partsOf(trace: ConnectionTrace, answered: number | undefined): number[] {
  const ends = [trace.lookedUp, trace.connected, trace.secured, answered, undefined];
  const parts: number[] = [];
  let from = trace.opened;
  for (const end of ends) {
    if (from === undefined) break;
    parts.push(Math.round((end ?? performance.now()) - from));
    from = end;
  }
  return parts;
}

/** Notes in a trace when the handshake of a socket ends, and the server's certificate. */
export function traceHandshake(trace: ConnectionTrace, socket: TLSSocket): void {
  socket.once("connect", () => {
    trace.connected ??= performance.now();
  });
  // Before Node's own listener, which closes the socket if it does not accept the certificate.
  socket.prependOnceListener("secure", () => {
    trace.secured = performance.now();
    if ("certificate" in trace) trace.certificate = socket.getPeerX509Certificate();
  });
}
