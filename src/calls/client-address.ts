import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import {
  type ContextValues,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import ipaddr from "ipaddr.js";
import { LRUCache } from "lru-cache";

/**
 * A client address as people write it: IPv4 without the prefix `::ffff:` that a socket of both families adds, IPv6
 * without a zone. Null if the text is not an address.
 */
export function plainAddress(text: string): string | null {
  return ipaddr.isValid(text) ? ipaddr.process(text.replace(/%.*$/, "")).toString() : null;
}

/** The networks of recent addresses: to parse one takes 3 µs, for each HTTP/2 stream. */
const sites = new LRUCache<string, string>({ max: 10_000, memoMethod: parseSite });

function parseSite(text: string): string {
  if (!ipaddr.isValid(text)) return text;
  const address = ipaddr.process(text);
  return address instanceof ipaddr.IPv6 ? address.parts.slice(0, 4).join(":") : address.toString();
}

/** The network of a client address. IPv6 addresses count by /64, because a client usually controls a whole /64. */
export function siteOf(text: string): string {
  return sites.memo(text);
}

const callerTls = createContextKey<() => boolean>(() => false, {
  description: "whether the caller comes by TLS",
});
const callerAddress = createContextKey<(() => string) | null>(null, { description: "where the caller is" });

/** Creates the context values of a request for the gate. */
export type AddressValues = (request: IncomingMessage | Http2ServerRequest) => ContextValues;

/** Creates the context values of a request for the gate. The address is computed on demand. */
export function addressValues(
  read: (request: IncomingMessage | Http2ServerRequest) => string,
  readTls: (request: IncomingMessage | Http2ServerRequest) => boolean,
): AddressValues {
  return (request) =>
    createContextValues()
      .set(callerAddress, () => read(request))
      .set(callerTls, () => readTls(request));
}

/** Whether the client's connection uses TLS. */
export function isByTls(handler: HandlerContext): boolean {
  return handler.values.get(callerTls)();
}

/** Sets how to read the client address of a call. */
export function setAddress(handler: HandlerContext, read: () => string): void {
  handler.values.set(callerAddress, read);
}

/** The client address as text; empty if the connection is closed. */
export function addressOf(handler: HandlerContext): string {
  return handler.values.get(callerAddress)?.() ?? "";
}
