// Must be loaded before @peculiar/x509.
import "reflect-metadata";
import { createPrivateKey, webcrypto } from "node:crypto";
import tls from "node:tls";
import * as x509 from "@peculiar/x509";
import { expect, onTestFinished, test } from "vitest";
import { type Certificate, createLocalAuthority } from "../../../demo/certificates.ts";
import { verdictOf } from "../../../src/delivery/limits/verdict.ts";
import { aClient, type Differences, namesAt, noting, send } from "../../delivery/http-parts.ts";
import { localCertificate } from "../../support/receivers.ts";

const [serverAuthority, clientAuthority] = [await createLocalAuthority(), await createLocalAuthority()];
const [alice, bob] = [
  await clientAuthority.issue(["alice"], { client: true }),
  await clientAuthority.issue(["bob"], { client: true }),
];
const ofServer = (name: string) => serverAuthority.issue([name]);

const receiver = (certificate: Certificate, demands = true) =>
  noting(certificate, { authority: clientAuthority.cert, demands });

function as(certificate?: Certificate, authorities: string | null = serverAuthority.cert): Differences {
  const client = certificate ? { certificate: certificate.cert, key: certificate.key } : null;
  return { tls: { client, authorities } };
}

test.each<[string, Certificate, boolean, Differences[], (string | undefined)[]]>([
  ["identity", await ofServer("localhost"), true, [as(alice), as(bob)], ["alice", "bob"]],
  ["client without a certificate", await localCertificate(), false, [as(alice, null), {}], []],
])(
  "each %s uses its own connections, again and again, and no other's",
  async (_who, certificate, demands, differences, names) => {
    const client = aClient();
    const { origin, seen } = await receiver(certificate, demands);
    for (const each of [...differences, ...differences])
      expect(await send(client, origin, each)).toMatchObject({ status: 200 });
    if (demands) expect(seen.map(({ client: name }) => name)).toEqual([...names, ...names]);
    const [first, second, ...again] = seen.map(({ port }) => port);
    expect(first).not.toBe(second);
    expect(again).toEqual([first, second]);
  },
);

test("connections to 150 hosts resume the session of the connection before", async () => {
  const names = Array.from({ length: 150 }, (_, n) => `host-${n}.example`);
  const { origin, seen } = await receiver(await serverAuthority.issue(names), false);
  const client = aClient({ resolver: namesAt("127.0.0.1") });
  const once = async () => {
    for (const name of names)
      await send(client, origin.replace("localhost", name), { ...as(), path: "/close" });
    return seen.splice(0).map(({ isResumed }) => isResumed);
  };
  expect(new Set(await once())).toEqual(new Set([false]));
  expect(new Set(await once())).toEqual(new Set([true]));
});

test("without a certificate that the receiver accepts, nothing is delivered", async () => {
  const { origin, seen } = await receiver(await ofServer("localhost"));
  const none = await send(aClient(), origin, as());
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
  expect(await send(client, ours.origin, as())).toMatchObject({ status: 200 });
  expect((await send(client, ours.origin)).error).toContain("unknown authority");
  // A wrong authority of one webhook says nothing about the host.
  const wrong = await send(client, theirs.origin, as());
  expect([wrong.failure, verdictOf(wrong)]).toEqual(["tls", { webhook: "failure", host: "none" }]);
  expect(wrong.error).toContain("unknown authority");
  expect(await send(client, theirs.origin)).toMatchObject({ status: 200 });
  expect((await send(client, misnamed.origin, as())).error).toContain("is for another host");
});

test("a certificate that cannot be used fails its attempts, and no others", async () => {
  const client = aClient();
  const { origin } = await receiver(await ofServer("localhost"));
  const mixed = as({ ...alice, key: bob.key });
  expect(await send(client, origin, mixed)).toMatchObject({ status: null, failure: "tls" });
  expect(await send(client, origin, as(alice))).toMatchObject({ status: 200 });
});

/** A root, an intermediate authority, and a certificate for localhost that the intermediate issued, as its server sends it. */
async function aChain() {
  x509.cryptoProvider.set(webcrypto as never);
  const signingAlgorithm = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
  const keyPair = () => webcrypto.subtle.generateKey(signingAlgorithm, true, ["sign", "verify"]);
  const [root, middle, leaf] = await Promise.all([keyPair(), keyPair(), keyPair()]);
  const issue = (
    subject: string,
    of: webcrypto.CryptoKeyPair,
    issuer: string,
    by: webcrypto.CryptoKeyPair,
    isAuthority = true,
  ) =>
    x509.X509CertificateGenerator.create({
      subject,
      issuer,
      publicKey: of.publicKey,
      signingKey: by.privateKey,
      signingAlgorithm,
      extensions: isAuthority
        ? [new x509.BasicConstraintsExtension(true, undefined, true)]
        : [new x509.SubjectAlternativeNameExtension([{ type: "dns", value: "localhost" }])],
    });
  const intermediate = await issue("CN=Intermediate", middle, "CN=Root", root);
  const certificate = await issue("CN=localhost", leaf, "CN=Intermediate", middle, false);
  const key = Buffer.from(await webcrypto.subtle.exportKey("pkcs8", leaf.privateKey));
  return {
    root: (await issue("CN=Root", root, "CN=Root", root)).toString("pem"),
    intermediate: intermediate.toString("pem"),
    cert: certificate.toString("pem"),
    key: createPrivateKey({ key, format: "der", type: "pkcs8" })
      .export({ type: "pkcs8", format: "pem" })
      .toString(),
  };
}

test("an intermediate authority alone is trusted, whether or not the receiver sends it, and no other root is", async () => {
  const { root, intermediate, cert, key } = await aChain();
  const trusted = as(undefined, intermediate);
  for (const sent of [cert, `${cert}\n${intermediate}`]) {
    const { origin } = await noting({ cert: sent, key }, { demands: false });
    expect(await send(aClient(), origin, trusted)).toMatchObject({ status: 200 });
    const other = await send(aClient(), origin, as(undefined, serverAuthority.cert));
    expect(other).toMatchObject({
      status: null,
      failure: "tls",
      error: expect.stringContaining("unknown authority"),
    });
  }
  const withRoot = await noting({ cert, key }, { demands: false });
  const incomplete = await send(aClient(), withRoot.origin, as(undefined, root));
  expect(incomplete.error).toMatch(/does not send the intermediate certificates; make the server send/);
});

test("an intermediate authority that the operator adds to the public ones is trusted without its root", async () => {
  const { intermediate, cert, key } = await aChain();
  const { origin } = await noting({ cert, key }, { demands: false });
  const before = tls.getCACertificates("default");
  onTestFinished(() => tls.setDefaultCACertificates(before));
  expect(await send(aClient(), origin)).toMatchObject({ status: null });
  tls.setDefaultCACertificates([...before, intermediate]);
  expect(await send(aClient(), origin)).toMatchObject({ status: 200 });
});
