import { type IncomingMessage, request } from "node:http";
import { isIPv6, type Socket } from "node:net";
import type { ProxyAddress } from "./proxy-address.ts";
import { ProxyRefusedError, ProxyUnavailableError } from "./proxy-error.ts";

/**
 * Requests a tunnel to a host, by address or name, and port with HTTP CONNECT (RFC 9110, 9.3.6).
 *
 * @param socket an open connection to the proxy, which becomes the tunnel
 * @throws ProxyRefusedError, ProxyUnavailableError, or the socket's error
 */
export function requestConnect(
  socket: Socket,
  host: string,
  port: number,
  credentials: ProxyAddress["credentials"],
): Promise<void> {
  const user = credentials && Buffer.from(`${credentials.username}:${credentials.password}`);
  const authority = isIPv6(host) ? `[${host}]:${port}` : `${host}:${port}`;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const connect = request({
    method: "CONNECT",
    path: authority,
    // Some proxies expect these header names with this capitalization.
    headers: { Host: authority, ...(user && { "Proxy-Authorization": `Basic ${user.toString("base64")}` }) },
    createConnection: () => socket,
  });
  connect.on("connect", (response) => {
    const { statusCode: status = 0 } = response;
    if (status >= 200 && status <= 299) resolve();
    else reject(refusal(status, response));
  });
  connect.on("error", (error: NodeJS.ErrnoException) => {
    const notHttp = `its answer is not HTTP (${error.code}); check the scheme and port of DELIVERY_PROXY`;
    reject(error.code?.startsWith("HPE_") ? new ProxyUnavailableError(notHttp) : error);
  });
  connect.end();
  return promise;
}

function refusal(status: number, { headers }: IncomingMessage): Error {
  // Some proxies answer 407 for a target that their rules refuse, without the header that asks for credentials.
  if (status === 407 && headers["proxy-authenticate"] !== undefined) {
    return new ProxyUnavailableError(
      "it demands other credentials (407); check the user and password of DELIVERY_PROXY",
    );
  }
  if (status === 502 || status === 504)
    return new ProxyRefusedError(`it cannot reach the receiver (${status})`, "host");
  if (status >= 500) return new ProxyRefusedError(`it opened no connection (${status})`, "proxy", true);
  return new ProxyRefusedError(`it refuses connections to this receiver (${status})`);
}
