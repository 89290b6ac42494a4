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

/** The address of the service as browsers have it, in front of all proxies. */
export interface PublicAddress {
  /** Whether the browser's connection uses TLS. */
  isTls: boolean;
  /** The host, with its port unless the scheme implies it; empty if the request names none. */
  host: string;
  /** The path prefix, such as `/webhooks`; empty for none. */
  basePath: string;
  /** Whether the request comes from a proxy whose headers are trusted. */
  isForwarded: boolean;
}

const NOWHERE: PublicAddress = { isTls: false, host: "", basePath: "", isForwarded: false };
const publicAddress = createContextKey<() => PublicAddress>(() => NOWHERE, {
  description: "the service's address as the caller has it",
});
const callerAddress = createContextKey<(() => string) | null>(null, { description: "where the caller is" });

/** Creates the context values of a request for the gate. */
export type AddressValues = (request: IncomingMessage | Http2ServerRequest) => ContextValues;

/** Creates the context values of a request for the gate. The addresses are computed on demand. */
export function addressValues(
  read: (request: IncomingMessage | Http2ServerRequest) => string,
  readPublic: (request: IncomingMessage | Http2ServerRequest) => PublicAddress,
): AddressValues {
  return (request) =>
    createContextValues()
      .set(callerAddress, () => read(request))
      .set(publicAddress, () => readPublic(request));
}

/** The address of the service as the caller has it. */
export function publicAddressOf(handler: HandlerContext): PublicAddress {
  return handler.values.get(publicAddress)();
}

/** Sets how to read the client address of a call. */
export function setAddress(handler: HandlerContext, read: () => string): void {
  handler.values.set(callerAddress, read);
}

/** The client address as text; empty if the connection is closed. */
export function addressOf(handler: HandlerContext): string {
  return handler.values.get(callerAddress)?.() ?? "";
}
