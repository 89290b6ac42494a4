import { type IncomingMessage, ServerResponse } from "node:http";
import { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";

/** Request headers that responses may depend on: protocol, encoding and credentials. */
const VARY = [
  "Accept",
  "Accept-Encoding",
  "Cookie",
  "Origin",
  "Sec-Fetch-Site",
  "X-Service-Key",
  "X-Settings-Page",
].join(", ");

/** The max-age of Strict-Transport-Security, in seconds: one year. */
const HSTS_MAX_AGE_S = 31_536_000;

/**
 * Headers of every response. Public responses, such as files of the admin UI, override them.
 *
 * @param tls whether the service itself terminates TLS
 */
export function answerHeaders(tls: boolean): Record<string, string> {
  return {
    "Cache-Control": "no-store",
    Vary: VARY,
    "X-Content-Type-Options": "nosniff",
    ...(tls ? { "Strict-Transport-Security": `max-age=${HSTS_MAX_AGE_S}` } : {}),
  };
}

/**
 * The Content-Security-Policy of a page: only files of this service, and inline code only with the nonce.
 *
 * @param nonce of inline scripts and styles. Without one, nothing inline is allowed
 */
export function contentSecurityPolicy(nonce?: string): string {
  const own = nonce === undefined ? "'self'" : `'self' 'nonce-${nonce}'`;
  return [
    "default-src 'none'",
    `script-src ${own}`,
    `style-src ${own}`,
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join("; ");
}

/** The headers of every response as lines of a manually written HTTP/1.1 response. */
export function answerHeaderLines(socket: Socket): string[] {
  return Object.entries(answerHeaders("encrypted" in socket)).map(([name, value]) => `${name}: ${value}`);
}

/**
 * Options of Node's servers that set these headers on each response before any handler runs, so that none can omit
 * them.
 */
export function answerClasses(tls: boolean) {
  const headers = Object.entries(answerHeaders(tls));
  class Http1Answer<R extends IncomingMessage> extends ServerResponse<R> {
    constructor(...options: ConstructorParameters<typeof ServerResponse<R>>) {
      super(...options);
      for (const [name, value] of headers) this.setHeader(name, value);
    }
  }
  class Http2Answer extends Http2ServerResponse {
    constructor(...options: ConstructorParameters<typeof Http2ServerResponse>) {
      super(...options);
      for (const [name, value] of headers) this.setHeader(name, value);
    }
  }
  return { ServerResponse: Http1Answer, Http1ServerResponse: Http1Answer, Http2ServerResponse: Http2Answer };
}
