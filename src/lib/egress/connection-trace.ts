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
  /** The certificate of the server, also if it was not accepted. Its issuers are `issuerCertificate`. */
  certificate?: X509Certificate | undefined;
}

/** Notes in a trace when the handshake of a socket ends, and the server's certificate. */
export function traceHandshake(trace: ConnectionTrace, socket: TLSSocket): void {
  socket.once("connect", () => {
    trace.connected ??= performance.now();
  });
  // Before Node's own listener, which closes the socket if it does not accept the certificate.
  socket.prependOnceListener("secure", () => {
    trace.secured = performance.now();
    trace.certificate = socket.getPeerX509Certificate();
  });
}
