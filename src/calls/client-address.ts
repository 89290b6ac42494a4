import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import {
  type ContextValues,
  createContextKey,
  createContextValues,
  type HandlerContext,
} from "@connectrpc/connect";
import proxyAddress from "@fastify/proxy-addr";
import ipaddr from "ipaddr.js";
import type { Network } from "../lib/egress/index.ts";

/** Returns the client address of a request. */
export type AddressReader = (request: IncomingMessage | Http2ServerRequest) => string;

/** Whether an address is that of a trusted proxy. */
export type ProxyTrust = (address: string) => boolean;

/** @param trustedProxies networks whose `X-Forwarded-For` header is trusted */
export function createProxyTrust(trustedProxies: readonly Network[]): ProxyTrust {
  if (trustedProxies.length === 0) return () => false;
  return (text) => {
    if (!ipaddr.isValid(text)) return false;
    const address = ipaddr.process(text);
    return trustedProxies.some(
      ([network, bits]) => network.kind() === address.kind() && address.match(network as ipaddr.IPv4, bits),
    );
  };
}

/**
 * Creates a reader for client addresses: the peer address of the connection or, behind trusted proxies, the last
 * address in X-Forwarded-For that is not a trusted proxy.
 */
export function createAddressReader(trustedProxies: readonly Network[]): AddressReader {
  if (trustedProxies.length === 0) return (request) => request.socket?.remoteAddress ?? "";
  const isTrusted = createProxyTrust(trustedProxies);
  return (request) =>
    withoutPort(proxyAddress(request as IncomingMessage, (entry) => isTrusted(withoutPort(entry))));
}

/**
 * The address of an entry in X-Forwarded-For. Some proxies write it with a port: `192.0.2.1:50123`, `[2001:db8::1]:50123`.
 *
 * @param entry undefined if it is the peer of a connection that is closed
 */
function withoutPort(entry: string | undefined): string {
  return entry?.replace(/^(?:(\d+(?:\.\d+){3})|\[([^\]]*)\])(?::\d+)?$/, "$1$2") ?? "";
}

/** Whether the client's connection uses TLS. */
export type TlsReader = (request: IncomingMessage | Http2ServerRequest) => boolean;

/**
 * Creates a reader for TLS: whether the connection uses TLS, or comes from a trusted proxy whose X-Forwarded-Proto
 * says so. Headers that clients can forge, such as Host, are not used.
 */
export function createTlsReader(trustedProxies: readonly Network[]): TlsReader {
  const isTrusted = createProxyTrust(trustedProxies);
  return ({ socket, headers }) => {
    if ("encrypted" in socket && socket.encrypted === true) return true;
    if (!isTrusted(socket.remoteAddress ?? "")) return false;
    // With several proxies, the first entry is that of the proxy that the client is connected to.
    const [first = ""] = String(headers["x-forwarded-proto"] ?? "").split(",", 1);
    return first.trim().toLowerCase() === "https";
  };
}

/**
 * A client address as people write it: IPv4 without the prefix `::ffff:` that a socket of both families adds, IPv6
 * without a zone. Null if the text is not an address.
 */
export function plainAddress(text: string): string | null {
  return ipaddr.isValid(text) ? ipaddr.process(text.replace(/%.*$/, "")).toString() : null;
}

/** The network of a client address. IPv6 addresses count by /64, because a client usually controls a whole /64. */
export function siteOf(text: string): string {
  if (!ipaddr.isValid(text)) return text;
  const address = ipaddr.process(text);
  return address instanceof ipaddr.IPv6 ? address.parts.slice(0, 4).join(":") : address.toString();
}

const callerTls = createContextKey<() => boolean>(() => false, {
  description: "whether the caller comes by TLS",
});
const callerAddress = createContextKey<(() => string) | null>(null, { description: "where the caller is" });

/** Creates the context values of a request for the gate. */
export type AddressValues = (request: IncomingMessage | Http2ServerRequest) => ContextValues;

/** Creates the context values of a request for the gate. The address is computed on demand. */
export function addressValues(read: AddressReader, readTls: TlsReader): AddressValues {
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
