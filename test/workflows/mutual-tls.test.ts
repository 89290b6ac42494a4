import { createPrivateKey, X509Certificate } from "node:crypto";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import type { TLSSocket } from "node:tls";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Certificate, createLocalAuthority, type LocalAuthority } from "../../demo/certificates.ts";
import { AuditService } from "../../gen/webhook/v1/audit_pb.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import type { TlsSettingsSchema } from "../../gen/webhook/v1/request_settings_pb.ts";
import { failure } from "../support/failure.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

type Tls = MessageInitShape<typeof TlsSettingsSchema>;

let service: TestService;
/** Not trusted by the service's process. */
let authority: LocalAuthority;
let [shop, other]: Certificate[] = [];
beforeAll(async () => {
  service = await startTestService({ ...WOKEN });
  authority = await createLocalAuthority();
  [shop, other] = await Promise.all(
    ["shop", "other"].map((name) => authority.issue([name], { client: true })),
  );
});
afterAll(() => service.stop());

/** A receiver with a certificate of the private authority, which demands one of its clients. */
async function strictReceiver(): Promise<{ url: string; clients: string[] }> {
  const clients: string[] = [];
  const certificate = await authority.issue(["localhost"]);
  const demands = { requestCert: true, rejectUnauthorized: true, ca: authority.cert };
  const server = createServer({ ...certificate, ...demands }, (request, response) => {
    clients.push(String((request.socket as TLSSocket).getPeerCertificate().subject.CN));
    request.resume().on("end", () => response.end("noted"));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `https://localhost:${(server.address() as AddressInfo).port}`, clients };
}

const settingsOf = ({ cert, key }: Certificate = { cert: "", key: "" }): { tls: Tls } => ({
  tls: { clientCertificate: { certificate: cert, key }, authorities: { certificates: authority.cert } },
});

test("a webhook's client certificate and authority are tried, saved, used for its deliveries only, and masked", async () => {
  const { webhooks } = service;
  const receiver = await strictReceiver();
  const [first, second, bare] = [
    await service.register(`${receiver.url}/first`),
    await service.register(`${receiver.url}/second`),
    await service.register(`${receiver.url}/bare`),
  ];
  const untrusted = await webhooks.tryWebhookRequest({ webhookId: first, settings: {} });
  expect(untrusted.error).toContain("unknown authority");
  const tried = await webhooks.tryWebhookRequest({ webhookId: first, settings: settingsOf(shop) });
  expect(tried).toMatchObject({ accepted: true, status: 200, responseStart: "noted" });
  expect(
    (await webhooks.getWebhookRequestSettings({ webhookId: first })).settings?.clientCertificate,
  ).toBeUndefined();

  const { settings } = await webhooks.setWebhookRequestSettings({
    webhookId: first,
    settings: settingsOf(shop),
  });
  await webhooks.setWebhookRequestSettings({ webhookId: second, settings: settingsOf(other) });
  const leaf = new X509Certificate(shop?.cert ?? "");
  const { clientCertificate, authorities = [] } = settings ?? {};
  expect(clientCertificate).toMatchObject({
    subject: "CN=shop",
    issuer: leaf.issuer,
    fingerprintSha256: leaf.fingerprint256,
  });
  expect(timestampDate(clientCertificate?.expires as never)).toEqual(leaf.validToDate);
  expect(authorities.map(({ fingerprintSha256 }) => fingerprintSha256)).toEqual([
    new X509Certificate(authority.cert).fingerprint256,
  ]);

  receiver.clients.length = 0;
  const states = new Map(
    (await service.untilFinal((await service.publish()).eventId)).map((each) => [each.webhookId, each]),
  );
  expect(states.get(first)).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 1 });
  expect(states.get(second)).toMatchObject({ state: DeliveryState.DELIVERED, attemptCount: 1 });
  expect(states.get(bare)).toMatchObject({ state: DeliveryState.FAILED });
  expect(receiver.clients.toSorted()).toEqual(["other", "shop"]);

  // What is left out is kept.
  const kept = { tls: { clientCertificate: {}, authorities: {} } };
  expect(await webhooks.tryWebhookRequest({ webhookId: first, settings: kept })).toMatchObject({
    accepted: true,
  });
  expect(receiver.clients.at(-1)).toBe("shop");

  const secret = shop?.key.split("\n")[1] as string;
  const stored = await service.db("webhooks").where({ id: first }).first<{ request_settings: Buffer }>();
  expect(stored?.request_settings.includes(secret)).toBe(false);
  const audit = createClient(AuditService, service.transport);
  const { entries } = await audit.listAuditEntries({ targetId: String(first) });
  const changes = entries.flatMap((entry) => entry.changes);
  expect(changes.find(({ field }) => field === "client_certificate")?.after).toContain(leaf.fingerprint256);
  expect(
    JSON.stringify([changes, settings], (_name, value) =>
      typeof value === "bigint" ? String(value) : value,
    ),
  ).not.toMatch(/PRIVATE KEY|MIG[A-Z]/);

  const removed = await webhooks.setWebhookRequestSettings({ webhookId: first, settings: {} });
  expect(removed.settings?.clientCertificate).toBeUndefined();
  expect(removed.settings?.authorities).toEqual([]);
  await service.removeWebhooks();
});

test("a certificate or key that cannot be used is refused when it is set, without repeating it", async () => {
  const webhookId = await service.register("https://receiver.example/mutual-tls");
  const past = {
    notBefore: new Date(Date.now() - 2_000),
    notAfter: new Date(Date.now() - 1_000),
    client: true,
  };
  const expired = await authority.issue(["expired"], past);
  const { cert = "", key = "" } = shop ?? {};
  const locked = createPrivateKey(key).export({
    type: "pkcs8",
    format: "pem",
    cipher: "aes-256-cbc",
    passphrase: "x",
  });
  const client = (more: { certificate?: string; key?: string }): Tls => ({
    clientCertificate: { certificate: cert, key, ...more },
  });
  const cases: [Tls, string][] = [
    [client({ key: other?.key ?? "" }), "client_certificate.key is a key that does not belong"],
    [client({ key: "secret nonsense" }), "client_certificate.key must be a private key in PEM"],
    [client({ key: String(locked) }), "client_certificate.key is encrypted with a password"],
    [client({ key: "x".repeat(16_385) }), "client_certificate.key has 16385 characters; at most 16384"],
    [client({ certificate: "nonsense" }), "client_certificate.certificate must hold 1 to 10 certificates"],
    [client({ certificate: cert.replace(/M/g, "N") }), "certificate 1 cannot be read"],
    [client({ certificate: cert.repeat(11) }), "must hold 1 to 10 certificates"],
    [client({ certificate: expired.cert, key: expired.key }), "certificate 1 expired at"],
    [{ clientCertificate: {} }, "client_certificate.certificate is required: none is stored"],
    [{ clientCertificate: { certificate: cert } }, "client_certificate.key is required: none is stored"],
    [{ authorities: {} }, "authorities.certificates is required: none are stored"],
    [{ authorities: { certificates: key } }, "authorities.certificates must hold"],
    [{ authorities: { certificates: cert + expired.cert } }, "certificate 2 expired at"],
  ];
  for (const [tls, words] of cases) {
    const refused = await failure(
      service.webhooks.setWebhookRequestSettings({ webhookId, settings: { tls } }),
    );
    expect(refused?.rawMessage).toContain(`settings.tls.`);
    expect(refused?.rawMessage).toContain(words);
    expect(refused?.rawMessage).not.toMatch(/nonsense|MIG|BEGIN PRIVATE KEY-----\n/);
  }
  // A renewed certificate with another key does not keep the stored one.
  await service.webhooks.setWebhookRequestSettings({ webhookId, settings: settingsOf(shop) });
  const renewed = { tls: { clientCertificate: { certificate: other?.cert ?? "" } } };
  const refused = await failure(service.webhooks.setWebhookRequestSettings({ webhookId, settings: renewed }));
  expect(refused?.rawMessage).toContain("the stored key does not belong to the certificate");
  // The same certificate does.
  const same = { tls: { clientCertificate: { certificate: cert } } };
  const { settings } = await service.webhooks.setWebhookRequestSettings({ webhookId, settings: same });
  expect(settings?.clientCertificate?.subject).toBe("CN=shop");
  await service.removeWebhooks();
});

test("a client certificate without a subject is saved, and shown by its alternative names", async () => {
  const webhookId = await service.register("https://receiver.example/no-subject");
  const nameless = await authority.issue(["shop.example"], { client: true, subject: "" });
  const { settings } = await service.webhooks.setWebhookRequestSettings({
    webhookId,
    settings: settingsOf(nameless),
  });
  expect(settings?.clientCertificate).toMatchObject({
    subject: "DNS:shop.example",
    fingerprintSha256: new X509Certificate(nameless.cert).fingerprint256,
  });
  await service.removeWebhooks();
});
