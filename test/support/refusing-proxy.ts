import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { onTestFinished, vi } from "vitest";

/**
 * Sets the proxy variables to a proxy that refuses every connection, until the test has finished.
 *
 * @returns the number of connections that the proxy got
 */
export async function useRefusingProxy(): Promise<() => number> {
  let connections = 0;
  const proxy = createServer((socket) => {
    connections += 1;
    socket.on("error", () => {});
    socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  const url = `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`;
  for (const name of ["grpc_proxy", "https_proxy", "http_proxy"]) vi.stubEnv(name, url);
  for (const name of ["no_grpc_proxy", "no_proxy"]) vi.stubEnv(name, "");
  onTestFinished(() => {
    vi.unstubAllEnvs();
    proxy.close();
  });
  return () => connections;
}
