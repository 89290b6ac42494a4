/** Values of HOST under which clients on this machine reach the service as `localhost`. Empty: all addresses. */
const LOCAL = ["", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost"];

/**
 * The `host:port` at which clients on this machine reach a listener.
 *
 * @param host the address to listen on, as HOST names it
 */
export function clientAddress(host: string, port: number): string {
  if (LOCAL.includes(host)) return `localhost:${port}`;
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}
