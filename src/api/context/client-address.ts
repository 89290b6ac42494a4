import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import proxyAddress from "@fastify/proxy-addr";
import ipaddr from "ipaddr.js";
import type { Network } from "../../lib/egress/index.ts";

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
