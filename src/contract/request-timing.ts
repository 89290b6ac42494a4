import { present } from "./present.ts";

/**
 * The durations of the parts of a request as a message has them.
 *
 * @param parts in milliseconds, up to the part in which the request ended: the DNS lookup, the connection, TLS, up to the response headers,
 *   and the body
 */
export function timingOf([dnsMs, connectMs, tlsMs, firstByteMs, bodyMs]: readonly number[]) {
  return present({ dnsMs, connectMs, tlsMs, firstByteMs, bodyMs });
}
