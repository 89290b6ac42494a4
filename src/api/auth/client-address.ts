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
import type { Network } from "../../config/values.ts";

/** Says where a request comes from. */
export type AddressReader = (request: IncomingMessage | Http2ServerRequest) => string;

/** Whether an address is that of a trusted proxy. */
export type ProxyTrust = (address: string) => boolean;

/** @param trustedProxies networks whose `X-Forwarded-For` is believed */
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
 * The address of the connection's other end; where that is a trusted proxy, the last address of X-Forwarded-For that
 * is none.
 */
export function createAddressReader(trustedProxies: readonly Network[]): AddressReader {
  if (trustedProxies.length === 0) return (request) => request.socket?.remoteAddress ?? "";
  const trusted = createProxyTrust(trustedProxies);
  return (request) => proxyAddress(request as IncomingMessage, trusted);
}

/** Says whether a caller reaches the service by TLS. */
export type TlsReader = (request: IncomingMessage | Http2ServerRequest) => boolean;

/**
 * Whether the connection is TLS, or comes from a trusted proxy that says by X-Forwarded-Proto that the caller's is. What
 * a caller says of itself, in Host or elsewhere, does not count.
 */
export function createTlsReader(trustedProxies: readonly Network[]): TlsReader {
  const isTrusted = createProxyTrust(trustedProxies);
  return ({ socket, headers }) => {
    if ("encrypted" in socket && socket.encrypted === true) return true;
    if (!isTrusted(socket.remoteAddress ?? "")) return false;
    // Of several proxies the first one speaks with the caller.
    const [first = ""] = String(headers["x-forwarded-proto"] ?? "").split(",", 1);
    return first.trim().toLowerCase() === "https";
  };
}

/** The network of a client: an IPv6 address counts by /64, because whoever has one address has them all. */
export function siteOf(text: string): string {
  if (!ipaddr.isValid(text)) return text;
  const address = ipaddr.process(text);
  return address instanceof ipaddr.IPv6 ? address.parts.slice(0, 4).join(":") : address.toString();
}

const callerTls = createContextKey<() => boolean>(() => false, {
  description: "whether the caller comes by TLS",
});
const callerAddress = createContextKey<(() => string) | null>(null, { description: "where the caller is" });

/** Makes what a listener tells the gate of a request. */
export type AddressValues = (request: IncomingMessage | Http2ServerRequest) => ContextValues;

/** What a listener tells the gate of a request; the address is only worked out when it is asked for. */
export function addressValues(read: AddressReader, readTls: TlsReader): AddressValues {
  return (request) =>
    createContextValues()
      .set(callerAddress, () => read(request))
      .set(callerTls, () => readTls(request));
}

/** Whether the caller comes by TLS. */
export function isByTls(handler: HandlerContext): boolean {
  return handler.values.get(callerTls)();
}

/** Where the caller is, as text; empty when the connection is gone. */
export function addressOf(handler: HandlerContext): string {
  return handler.values.get(callerAddress)?.() ?? "";
}
