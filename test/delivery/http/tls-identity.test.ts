import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import tls, { type TLSSocket } from "node:tls";
import ipaddr from "ipaddr.js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Certificate, createLocalAuthority, type LocalAuthority } from "../../../demo/certificates.ts";
import type { Network } from "../../../src/config/values.ts";
import type { TlsSettings } from "../../../src/contract/target-rules.ts";
import type { Connections } from "../../../src/delivery/http/connections.ts";
import { createHttpClient } from "../../../src/delivery/http/http-client.ts";
import { IdentityCache, tlsIdentity } from "../../../src/delivery/http/tls-identity.ts";
import { verdictOf } from "../../../src/delivery/limits/verdict.ts";
import { createAddressGuard } from "../../../src/delivery/request/address-guard.ts";
import type { Outcome } from "../../../src/delivery/request/outcome.ts";
import { post } from "../../../src/delivery/request/post.ts";

const LOOPBACK = ipaddr.parseCIDR("127.0.0.0/8") as Network;

/** A request as its receiver saw it. */
interface Seen {
  /** The common name of the client's certificate; undefined without one. */
  client: string | undefined;
  /** The client's port: one for each connection. */
  port: number;
}

let publicAuthority: LocalAuthority;
let serverAuthority: LocalAuthority;
let clientAuthority: LocalAuthority;
let [alice, bob]: Certificate[] = [];
let client: Connections;
const servers: Server[] = [];

beforeAll(async () => {
  [publicAuthority, serverAuthority, clientAuthority] = await Promise.all([
    createLocalAuthority(),
    createLocalAuthority(),
    createLocalAuthority(),
  ]);
  tls.setDefaultCACertificates([...tls.getCACertificates("default"), publicAuthority.cert]);
  [alice, bob] = await Promise.all(
    ["alice", "bob"].map((name) => clientAuthority.issue([name], { client: true })),
  );
  client = createHttpClient(createAddressGuard([LOOPBACK]), 100);
});
afterAll(async () => {
  await client.destroy();
  for (const server of servers) server.closeAllConnections();
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
});

/** A receiver that tells connections apart. @param demands whether it demands a client certificate */
async function receiver(certificate: Certificate, demands = true): Promise<{ origin: string; seen: Seen[] }> {
  const seen: Seen[] = [];
  const options = { requestCert: demands, rejectUnauthorized: demands, ca: clientAuthority.cert };
  const server = createServer({ ...certificate, ...options }, (request, response) => {
    const socket = request.socket as TLSSocket;
    seen.push({
      client: socket.getPeerCertificate().subject?.CN as string | undefined,
      port: socket.remotePort as number,
    });
    request.resume().on("end", () => response.end("noted"));
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { origin: `https://localhost:${(server.address() as AddressInfo).port}`, seen };
}

function send(origin: string, settings: TlsSettings | null): Promise<Outcome> {
  const identity = tlsIdentity(settings);
  const request = { origin, path: "/", headers: [], body: "{}", ...(identity ? { tls: identity } : {}) };
  return new Promise((outcome) => post(client, request, 5_000, outcome));
}

const as = (certificate: Certificate | undefined, authorities: string | null = serverAuthority.cert) => ({
  client: certificate ? { certificate: certificate.cert, key: certificate.key } : null,
  authorities,
});

test("each identity authenticates with its certificate, over connections that no other identity uses", async () => {
  const { origin, seen } = await receiver(await serverAuthority.issue(["localhost"]));
  for (let round = 0; round < 3; round += 1) {
    for (const each of [alice, bob]) expect(await send(origin, as(each))).toMatchObject({ status: 200 });
  }
  expect(seen.map(({ client: name }) => name)).toEqual(["alice", "bob", "alice", "bob", "alice", "bob"]);
  const portsOf = (name: string) =>
    new Set(seen.filter((each) => each.client === name).map(({ port }) => port));
  // Reused by their own.
  expect([portsOf("alice").size, portsOf("bob").size]).toEqual([1, 1]);
  expect(portsOf("alice")).not.toEqual(portsOf("bob"));
});

test("requests without a certificate share no connection or session with those that have one", async () => {
  const { origin, seen } = await receiver(await publicAuthority.issue(["localhost"]), false);
  const settings = as(alice, null);
  for (const each of [settings, null, settings, null]) {
    expect(await send(origin, each)).toMatchObject({ status: 200 });
  }
  const ports = seen.map(({ port }) => port);
  expect([ports[2], ports[3]]).toEqual([ports[0], ports[1]]);
  expect(ports[0]).not.toBe(ports[1]);
});

test("without a certificate that the receiver accepts, nothing is delivered", async () => {
  const { origin, seen } = await receiver(await serverAuthority.issue(["localhost"]));
  const none = await send(origin, as(undefined));
  expect(none).toMatchObject({ status: null, delivered: false });
  // A server on Node closes the connection without an alert; OpenSSL's would say that it demands a certificate.
  expect(none.error).toMatch(/demands a client certificate|connection (closed|reset)/);
  const stranger = await (await createLocalAuthority()).issue(["mallory"], { client: true });
  const refused = await send(origin, as(stranger));
  expect(refused).toMatchObject({ status: null, delivered: false });
  expect(seen).toEqual([]);
});

test("private authorities replace the public ones, and nothing else: the host name is verified", async () => {
  const ours = await receiver(await serverAuthority.issue(["localhost"]), false);
  const theirs = await receiver(await publicAuthority.issue(["localhost"]), false);
  const misnamed = await receiver(await serverAuthority.issue(["other.example"]), false);
  const expired = { notBefore: new Date(Date.now() - 2_000), notAfter: new Date(Date.now() - 1_000) };
  const old = await receiver(await serverAuthority.issue(["localhost"], expired), false);
  expect(await send(ours.origin, as(undefined))).toMatchObject({ status: 200 });
  // A wrong authority of one webhook says nothing about the host.
  const wrong = await send(theirs.origin, as(undefined));
  expect([wrong.failure, verdictOf(wrong)]).toEqual(["tls", { webhook: "failure", host: "none" }]);
  expect((await send(ours.origin, null)).error).toContain("unknown authority");
  expect((await send(theirs.origin, as(undefined))).error).toContain("unknown authority");
  expect(await send(theirs.origin, null)).toMatchObject({ status: 200 });
  expect((await send(misnamed.origin, as(undefined))).error).toContain("certificate is for another host");
  expect((await send(old.origin, as(undefined))).error).toContain("certificate has expired");
});

test("a certificate that cannot be used fails its attempts, and no others", async () => {
  const { origin } = await receiver(await serverAuthority.issue(["localhost"]));
  const mixed = {
    client: { certificate: alice?.cert ?? "", key: bob?.key ?? "" },
    authorities: serverAuthority.cert,
  };
  expect(await send(origin, mixed)).toMatchObject({ status: null, delivered: false, failure: "tls" });
  expect(await send(origin, as(alice))).toMatchObject({ status: 200 });
});

test("what is kept for identities is bounded: the oldest are forgotten", () => {
  const made: string[] = [];
  const cache = new IdentityCache(3, ({ id }) => made.push(id));
  const identities = [1, 2, 3, 4].map((n) => tlsIdentity({ client: null, authorities: `${n}` }));
  for (const identity of identities) if (identity) cache.of(identity);
  expect([cache.size, made.length]).toEqual([3, 4]);
  if (identities[3]) cache.of(identities[3]);
  expect(made).toHaveLength(4);
  if (identities[0]) cache.of(identities[0]);
  expect([cache.size, made.length]).toEqual([3, 5]);
});
