import { once } from "node:events";
import { request } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { pipeline } from "node:stream";
import { createLocalAuthority } from "../../demo/certificates.ts";

/** A proxy that ends TLS in front of a service and says so. */
export interface TlsProxy {
  url: string;
  close(): Promise<void>;
}

/** Starts a proxy on a free port of localhost, with a certificate that nobody trusts. */
export async function startTlsProxy(target: string): Promise<TlsProxy> {
  const certificate = await (await createLocalAuthority()).issue(["localhost"]);
  const server = createServer(certificate, (incoming, outgoing) => {
    const { method, url, headers } = incoming;
    const forwarded = request(new URL(url ?? "/", target), {
      method,
      headers: { ...headers, "x-forwarded-proto": "https", "x-forwarded-for": incoming.socket.remoteAddress },
    });
    forwarded.on("response", (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers);
      pipeline(answer, outgoing, () => {});
    });
    // A page that leaves ends what it was asking for.
    pipeline(incoming, forwarded, () => {});
    outgoing.once("close", () => forwarded.destroy());
    forwarded.on("error", () => outgoing.destroy());
  });
  server.listen(0, "localhost");
  await once(server, "listening");
  return {
    url: `https://localhost:${(server.address() as AddressInfo).port}`,
    async close() {
      const closed = once(server, "close");
      server.close();
      server.closeAllConnections();
      await closed;
    },
  };
}
