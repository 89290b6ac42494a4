import { once } from "node:events";
import { createServer } from "node:https";
import { type AddressInfo, isIP, type Server, type Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import ipaddr from "ipaddr.js";
import { onTestFinished } from "vitest";
import type { Certificate } from "../../demo/certificates.ts";
import type { TlsSettings } from "../../src/contract/target-rules.ts";
import type { Outcome } from "../../src/delivery/request/outcome.ts";
import { type Gate, post } from "../../src/delivery/request/post.ts";
import { createAddressGuard } from "../../src/lib/egress/address-guard.ts";
import type { Connections } from "../../src/lib/egress/connections.ts";
import { createHttpClient } from "../../src/lib/egress/http-client.ts";
import type { Network } from "../../src/lib/egress/index.ts";
import type { Resolver } from "../../src/lib/egress/name-resolver.ts";
import type { OutboundProxy } from "../../src/lib/egress/outbound-proxy.ts";
import type { Pacer } from "../../src/lib/egress/pacer.ts";
import { tlsIdentity } from "../../src/lib/egress/tls-identity.ts";
import { PATIENCE_MS } from "../support/patience.ts";

export const networkOf = (cidr: string) => ipaddr.parseCIDR(cidr) as Network;
export const LOOPBACK = networkOf("127.0.0.0/8");

/** Looks every name up as these addresses. */
export function namesAt(...addresses: string[]): Resolver {
  const found = addresses.map((address) => ({ address, family: isIP(address) }));
  return { resolve: async () => found, close() {} };
}

/** A client that may deliver to this machine, until the end of the test. */
export function aClient({
  networks = [LOOPBACK],
  proxy,
  handshakes,
  ...guard
}: {
  networks?: Network[];
  resolver?: Resolver;
  allowedHosts?: string[];
  allowedPorts?: number[];
  proxy?: OutboundProxy;
  handshakes?: Pacer;
} = {}): Connections {
  const client = createHttpClient(createAddressGuard(networks, guard), 1_000, proxy, handshakes);
  onTestFinished(() => client.destroy());
  return client;
}

/** What a POST differs in from the usual one. */
export interface Differences {
  path?: string;
  headers?: string[];
  /** Secrets in the headers. */
  hidden?: string[];
  body?: string;
  tls?: TlsSettings | null;
  /** Defaults to more than any receiver takes. */
  timeoutMs?: number;
  /** Of the webhook; none by default. */
  ownTimeoutMs?: number;
  maySend?: () => boolean;
}

/** Makes a POST. @returns what became of it, or that it was withdrawn, as when `maySend` says no */
export function deliver(
  via: Pick<Connections, "dispatch">,
  origin: string,
  { tls = null, timeoutMs = PATIENCE_MS, maySend = () => true, ...more }: Differences = {},
): Promise<Outcome | "withdrawn"> {
  return new Promise((resolve) => {
    const gate: Gate = { maySend, withdrawn: () => resolve("withdrawn") };
    post(via, requestTo(origin, more, tls), timeoutMs, resolve, gate);
  });
}

/** Makes a POST that nothing withdraws. */
export function send(
  via: Pick<Connections, "dispatch">,
  origin: string,
  { tls = null, timeoutMs = PATIENCE_MS, ...more }: Omit<Differences, "maySend"> = {},
): Promise<Outcome> {
  return new Promise((outcome) => post(via, requestTo(origin, more, tls), timeoutMs, outcome));
}

function requestTo(origin: string, more: Omit<Differences, "tls">, settings: TlsSettings | null) {
  const tls = tlsIdentity(settings);
  const { ownTimeoutMs: timeoutMs = null, ...others } = more;
  const usual = { origin, path: "/", headers: [], body: "{}", signed: new Date(), timeoutMs };
  return { ...usual, ...others, ...(tls ? { tls } : {}) };
}

/** A request and its connection. */
interface Seen {
  /** The name in the client's certificate. */
  client: string | undefined;
  port: number | undefined;
  host: string | undefined;
  isResumed: boolean;
}

/**
 * A receiver that notes each request. The path `/close` ends its connection.
 *
 * @param authority of certificates that it demands
 */
export async function noting(certificate: Certificate, { authority = "", demands = true } = {}) {
  const seen: Seen[] = [];
  const options = { requestCert: demands, rejectUnauthorized: demands, ca: authority };
  const server = createServer({ ...certificate, ...options }, (request, response) => {
    const socket = request.socket as TLSSocket;
    const client = socket.getPeerCertificate().subject?.CN as string | undefined;
    const isResumed = socket.isSessionReused();
    seen.push({ client, port: socket.remotePort, host: request.headers.host, isResumed });
    if (request.url === "/close") response.setHeader("connection", "close");
    request.resume().on("end", () => response.end("noted"));
  });
  const { port, origin } = await listening(server);
  return { origin, target: `127.0.0.1:${port}`, seen };
}

/** Has a server listen on 127.0.0.1 until the end of the test. */
export async function listening(
  server: Server,
): Promise<{ port: number; origin: string; open: Set<Socket> }> {
  const open = new Set<Socket>();
  server.on("connection", (socket: Socket) => {
    open.add(socket);
    socket.on("error", () => {}).once("close", () => open.delete(socket));
  });
  // Clients end handshakes that they do not like.
  server.on("tlsClientError", () => {});
  server.on("secureConnection", (socket: Socket) => socket.on("error", () => {}));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, origin: `https://localhost:${port}`, open };
}
