import { expect, test } from "vitest";
import { type Certificate, createLocalAuthority } from "../../../demo/certificates.ts";
import type { TlsSettings } from "../../../src/contract/target-rules.ts";
import { IdentityCache, tlsIdentity } from "../../../src/delivery/http/tls-identity.ts";
import { verdictOf } from "../../../src/delivery/limits/verdict.ts";
import { localCertificate } from "../../support/receivers.ts";
import { aClient, noting, send } from "../http-parts.ts";

const [serverAuthority, clientAuthority] = [await createLocalAuthority(), await createLocalAuthority()];
const [alice, bob] = [
  await clientAuthority.issue(["alice"], { client: true }),
  await clientAuthority.issue(["bob"], { client: true }),
];
const ofServer = (name: string) => serverAuthority.issue([name]);

const receiver = (certificate: Certificate, demands = true) =>
  noting(certificate, { authority: clientAuthority.cert, demands });

const as = (
  certificate: Certificate | undefined,
  authorities: string | null = serverAuthority.cert,
): { tls: TlsSettings } => ({
  tls: {
    client: certificate ? { certificate: certificate.cert, key: certificate.key } : null,
    authorities,
  },
});

test("each identity authenticates with its certificate, over connections that no other identity uses", async () => {
  const client = aClient();
  const { origin, seen } = await receiver(await ofServer("localhost"));
  for (const each of [alice, bob, alice, bob])
    expect(await send(client, origin, as(each))).toMatchObject({ status: 200 });
  expect(seen.map(({ client: name }) => name)).toEqual(["alice", "bob", "alice", "bob"]);
  const [first, second, ...again] = seen.map(({ port }) => port);
  expect(first).not.toBe(second);
  // Reused by their own.
  expect(again).toEqual([first, second]);
});

test("requests without a certificate share no connection or session with those that have one", async () => {
  const client = aClient();
  const { origin, seen } = await receiver(await localCertificate(), false);
  for (const each of [as(alice, null), {}, as(alice, null), {}])
    expect(await send(client, origin, each)).toMatchObject({ status: 200 });
  const [first, second, ...again] = seen.map(({ port }) => port);
  expect(first).not.toBe(second);
  expect(again).toEqual([first, second]);
});

test("without a certificate that the receiver accepts, nothing is delivered", async () => {
  const { origin, seen } = await receiver(await ofServer("localhost"));
  const none = await send(aClient(), origin, as(undefined));
  expect(none).toMatchObject({ status: null, delivered: false });
  // A server on Node closes the connection without an alert; OpenSSL's would say that it demands a certificate.
  expect(none.error).toMatch(/demands a client certificate|connection (closed|reset)/);
  const stranger = await (await createLocalAuthority()).issue(["mallory"], { client: true });
  expect(await send(aClient(), origin, as(stranger))).toMatchObject({ status: null, delivered: false });
  expect(seen).toEqual([]);
});

test("private authorities replace the public ones, and nothing else: the host name is verified", async () => {
  const client = aClient();
  const ours = await receiver(await ofServer("localhost"), false);
  const theirs = await receiver(await localCertificate(), false);
  const misnamed = await receiver(await ofServer("other.example"), false);
  expect(await send(client, ours.origin, as(undefined))).toMatchObject({ status: 200 });
  expect((await send(client, ours.origin)).error).toContain("unknown authority");
  // A wrong authority of one webhook says nothing about the host.
  const wrong = await send(client, theirs.origin, as(undefined));
  expect([wrong.failure, verdictOf(wrong)]).toEqual(["tls", { webhook: "failure", host: "none" }]);
  expect(wrong.error).toContain("unknown authority");
  expect(await send(client, theirs.origin)).toMatchObject({ status: 200 });
  expect((await send(client, misnamed.origin, as(undefined))).error).toContain("is for another host");
});

test("a certificate that cannot be used fails its attempts, and no others", async () => {
  const client = aClient();
  const { origin } = await receiver(await ofServer("localhost"));
  const mixed = as({ ...alice, key: bob.key });
  expect(await send(client, origin, mixed)).toMatchObject({ status: null, failure: "tls" });
  expect(await send(client, origin, as(alice))).toMatchObject({ status: 200 });
});

test("what is kept for identities is bounded: the oldest are forgotten", () => {
  const made: string[] = [];
  const cache = new IdentityCache(3, ({ id }) => made.push(id));
  const counts = [1, 2, 3, 4, 4, 1].map((n) => {
    const identity = tlsIdentity({ client: null, authorities: `${n}` });
    if (identity) cache.of(identity);
    return [cache.size, made.length];
  });
  expect(counts.slice(3)).toEqual([
    [3, 4],
    [3, 4],
    [3, 5],
  ]);
});
