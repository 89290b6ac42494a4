import { type IncomingMessage, ServerResponse } from "node:http";
import { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";

/** What answers may depend on: the protocol and the encoding, and everything that tells who asks. */
const VARY = [
  "Accept",
  "Accept-Encoding",
  "Cookie",
  "Origin",
  "Sec-Fetch-Site",
  "X-Service-Key",
  "X-Settings-Page",
].join(", ");

/** How long browsers reach the service by HTTPS only, in seconds: a year. */
const HSTS_MAX_AGE_S = 31_536_000;

/**
 * The headers of every answer, whoever writes it; what is no secret, such as the settings page's files, replaces them.
 *
 * @param tls the service itself ends TLS
 */
export function answerHeaders(tls: boolean): Record<string, string> {
  return {
    "Cache-Control": "no-store",
    Vary: VARY,
    "X-Content-Type-Options": "nosniff",
    ...(tls ? { "Strict-Transport-Security": `max-age=${HSTS_MAX_AGE_S}` } : {}),
  };
}

/** The same as lines of an HTTP/1.1 answer that is written by hand. */
export function answerHeaderLines(socket: Socket): string[] {
  return Object.entries(answerHeaders("encrypted" in socket)).map(([name, value]) => `${name}: ${value}`);
}

/**
 * Options of Node's servers that give each answer these headers before anybody writes it, so that no way of answering
 * can leave them out.
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
