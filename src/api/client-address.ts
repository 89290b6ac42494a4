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
import type { Network } from "../config-values.ts";

/** Says where a request comes from. */
export type AddressReader = (request: IncomingMessage | Http2ServerRequest) => string;

/**
 * The address of the connection's other end; where that is a trusted proxy, the last address of X-Forwarded-For that
 * is none.
 */
export function createAddressReader(trustedProxies: readonly Network[]): AddressReader {
  if (trustedProxies.length === 0) return (request) => request.socket.remoteAddress ?? "";
  const trusted = (text: string) => isTrusted(trustedProxies, text);
  return (request) => proxyAddress(request as IncomingMessage, trusted);
}

/** Says whether a caller reaches the service by TLS. */
export type TlsReader = (request: IncomingMessage | Http2ServerRequest) => boolean;

/**
 * Whether the connection is TLS, or comes from a trusted proxy that says by X-Forwarded-Proto that the caller's is. What
 * a caller says of itself, in Host or elsewhere, does not count.
 */
export function createTlsReader(trustedProxies: readonly Network[]): TlsReader {
  return ({ socket, headers }) => {
    if ("encrypted" in socket && socket.encrypted === true) return true;
    if (!isTrusted(trustedProxies, socket.remoteAddress ?? "")) return false;
    // Of several proxies the first one speaks with the caller.
    const [first = ""] = String(headers["x-forwarded-proto"] ?? "").split(",", 1);
    return first.trim().toLowerCase() === "https";
  };
}

function isTrusted(proxies: readonly Network[], text: string): boolean {
  if (!ipaddr.isValid(text)) return false;
  const address = ipaddr.process(text);
  return proxies.some(
    ([network, bits]) => network.kind() === address.kind() && address.match(network as ipaddr.IPv4, bits),
  );
}

/**
 * Carries the address within the process, from the REST gateway to the gate. Callers cannot set it: the listeners
 * know where their requests come from and never look here.
 */
export const ADDRESS_HEADER = "X-Caller-Address";

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
  return handler.values.get(callerAddress)?.() ?? handler.requestHeader.get(ADDRESS_HEADER) ?? "";
}
