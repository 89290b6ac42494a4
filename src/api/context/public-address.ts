import type { IncomingMessage } from "node:http";
import type { Http2ServerRequest } from "node:http2";
import type { PublicAddress } from "../../calls/index.ts";
import { basePathOf } from "../../config/index.ts";
import type { ProxyTrust } from "./client-address.ts";

type Request = IncomingMessage | Http2ServerRequest;

/** Returns the address of the service as the client of a request has it. */
export type PublicAddressReader = (request: Request) => PublicAddress;

/**
 * Creates a reader for the service's public address: that of the connection and of Host or, behind a trusted proxy, of X-Forwarded-Proto,
 * -Host and -Port. Other clients could forge these headers.
 *
 * @param basePath the prefix. If empty, that of X-Forwarded-Prefix of a trusted proxy
 */
export function createPublicAddressReader(isTrusted: ProxyTrust, basePath: string): PublicAddressReader {
  return (request) => {
    const { socket, headers } = request;
    const isForwarded = isTrusted(socket.remoteAddress ?? "");
    const forwarded = (name: string) => (isForwarded ? String(headers[`x-forwarded-${name}`] ?? "") : "");
    // With several proxies, the first entry is that of the proxy that the client is connected to.
    const first = (name: string) => forwarded(name).split(",", 1)[0]?.trim() ?? "";
    const isEncrypted = "encrypted" in socket && socket.encrypted === true;
    const sent = ("authority" in request ? request.authority : headers.host) ?? "";
    return {
      isTls: isEncrypted || first("proto").toLowerCase() === "https",
      host: withPort(first("host"), first("port")) || sent,
      basePath: basePath || prefixIn(forwarded("prefix")),
      isForwarded,
    };
  };
}

/** The host of X-Forwarded-Host. Some proxies write its port into X-Forwarded-Port instead. */
function withPort(host: string, port: string): string {
  return host !== "" && /^\d+$/.test(port) && !/:\d+$/.test(host) ? `${host}:${port}` : host;
}

/** The prefix that proxies have removed. Each adds its own at the end. */
function prefixIn(header: string): string {
  const parts = header.split(",").map((part) => part.trim().replace(/\/+$/, ""));
  return basePathOf(parts.join("")) ?? "";
}
