import { createPrivateKey, X509Certificate } from "node:crypto";
import { createServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer } from "node:net";
import type { TLSSocket } from "node:tls";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Certificate, createLocalAuthority, type LocalAuthority } from "../../demo/certificates.ts";
import type { Receiver } from "../../demo/receiver.ts";
import { AuditService } from "../../gen/webhook/v1/audit_pb.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import type { RequestSettingsSchema } from "../../gen/webhook/v1/request_settings_pb.ts";
import { startConnectProxy, type TestProxy } from "../delivery/proxy/proxies.ts";
import { expectRefused } from "../support/refusals.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

type Settings = MessageInitShape<typeof RequestSettingsSchema>;

/** Part of each secret that these tests send. No answer, record or log entry has it. */
const SECRET = "hush-4711";
const CREDENTIALS = `egress:${SECRET}`;
const NOTHING = { headerNames: [], hasBearerToken: false, authorities: [] };
const INVALID_CLIENT = "answered 401 (invalid_client)";

let service: TestService;
let proxy: TestProxy;
/** Not trusted by the service's process. */
let authority: LocalAuthority;
let shop: Certificate;
let other: Certificate;
beforeAll(async () => {
  authority = await createLocalAuthority();
  shop = await authority.issue(["shop"], { client: true });
  other = await authority.issue(["other"], { client: true });
  proxy = await startConnectProxy({ credentials: CREDENTIALS });
  service = await startTestService({
    ...WOKEN,
    DELIVERY_PROXY: `http://${CREDENTIALS}@127.0.0.1:${proxy.port}`,
  });
});
afterAll(async () => {
  await service?.stop();
  await proxy?.close();
});
afterEach(() => service.removeWebhooks());

const json = (value: unknown) =>
  JSON.stringify(value, (_name, each) => (typeof each === "bigint" ? String(each) : each));

const set = (webhookId: bigint, settings: Settings) =>
  service.webhooks.setWebhookRequestSettings({ webhookId, settings });

/** Publishes an event; answers what became of it at the webhook. */
async function deliver(webhookId: bigint) {
  const deliveries = await service.untilFinal((await service.publish()).eventId);
  const { id = "" } = deliveries.find((each) => each.webhookId === webhookId) ?? {};
  const { delivery, attempts } = await service.deliveries.getDelivery({ deliveryId: id });
  return { delivery, attempts };
}

/** An authorization server that issues `token-1`, `token-2` and on. */
async function authorizationServer(): Promise<Receiver> {
  let issued = 0;
  return service.receiver(({ headers }, response) => {
    const [, secret] = atob(headers.authorization?.split(" ")[1] ?? "").split(":");
    const isRight = decodeURIComponent(secret ?? "") === SECRET;
    response.writeHead(isRight ? 200 : 401, { "content-type": "application/json" });
    if (isRight) issued += 1;
    const token = { access_token: `token-${issued}`, token_type: "Bearer", expires_in: 3_600 };
    response.end(JSON.stringify(isRight ? token : { error: "invalid_client" }));
    return undefined;
  });
}

type Authentication = NonNullable<Settings["authentication"]>;

// Without a secret, the stored one is kept.
const oauth2 = ({ url }: Receiver, secret?: string, clientId = "shop"): Authentication => ({
  case: "oauth2",
  value: { tokenUrl: `${url}/token`, clientId, scope: "orders", ...(secret ? { clientSecret: secret } : {}) },
});
const bearer = (token?: string): Authentication => ({ case: "bearer", value: token ? { token } : {} });
const basic = (password?: string, username = "shop"): Authentication => ({
  case: "basic",
  value: { username, ...(password ? { password } : {}) },
});
const clientCertificate = ({ cert, key }: Certificate) => ({ certificate: cert, key });

/** A webhook at a receiver that accepts the requests with one identity, and settings of it. */
interface Authenticated {
  url: string;
  /** The identities of the requests so far. */
  seen: () => unknown[];
  right: Settings;
  /** With values left out, which are then those that are stored. */
  kept: Settings;
  wrong: Settings;
  /** What a trial with wrong settings answers. */
  refusal: object;
  /** What is told of the settings once they are stored. */
  masked: object;
  /** The identity of right requests. */
  identity: unknown;
}

async function byHeaders(
  authentication: (secret?: string) => Authentication,
  identity: RegExp,
  masked: object,
  refusal: object = { status: 401, responseStart: "who is there?" },
): Promise<Authenticated> {
  const receiver = await service.receiver(({ headers }, response) => {
    if (identity.test(headers.authorization ?? "")) return 200;
    response.writeHead(401).end("who is there?");
    return undefined;
  });
  const headers = [{ name: "X-Tenant", value: "4711" }];
  return {
    url: `${receiver.url}/orders`,
    seen: () =>
      receiver.received.map(({ headers: { authorization, "x-tenant": tenant } }) => [tenant, authorization]),
    right: { authentication: authentication(SECRET), headers },
    kept: { authentication: authentication(), headers: [{ name: "X-Tenant" }] },
    wrong: { authentication: authentication(`wrong-${SECRET}`), headers },
    refusal,
    masked: { headerNames: ["X-Tenant"], ...masked },
    identity: ["4711", expect.stringMatching(identity)],
  };
}

const AUTHENTICATIONS: Record<string, () => Promise<Authenticated>> = {
  "bearer token": () => byHeaders(bearer, new RegExp(`^Bearer ${SECRET}$`), { hasBearerToken: true }),
  password: () =>
    byHeaders(basic, new RegExp(`^Basic ${btoa(`shop:${SECRET}`)}$`), {
      basicUsername: "shop",
      hasBearerToken: false,
    }),
  "access token": async () => {
    const server = await authorizationServer();
    return byHeaders(
      (secret) => oauth2(server, secret),
      /^Bearer token-\d$/,
      { oauth2: { tokenUrl: `${server.url}/token`, clientId: "shop", scope: "orders" } },
      { error: `token endpoint localhost:${server.port} ${INVALID_CLIENT}` },
    );
  },
  "client certificate": async () => {
    const clients: string[] = [];
    const demands = { requestCert: true, rejectUnauthorized: true, ca: authority.cert };
    const certificate = await authority.issue(["localhost"]);
    const server = createServer({ ...certificate, ...demands }, (request, response) => {
      clients.push(String((request.socket as TLSSocket).getPeerCertificate().subject.CN));
      request.resume().on("end", () => response.end());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const leaf = new X509Certificate(shop.cert);
    return {
      url: `https://localhost:${(server.address() as AddressInfo).port}/`,
      seen: () => clients,
      right: {
        tls: { clientCertificate: clientCertificate(shop), authorities: { certificates: authority.cert } },
      },
      kept: { tls: { clientCertificate: {}, authorities: {} } },
      wrong: { tls: { clientCertificate: clientCertificate(shop) } },
      refusal: { error: expect.stringContaining("unknown authority") },
      masked: {
        clientCertificate: {
          subject: "CN=shop",
          issuer: leaf.issuer,
          fingerprintSha256: leaf.fingerprint256,
          expires: timestampFromDate(leaf.validToDate),
        },
        authorities: [{ fingerprintSha256: new X509Certificate(authority.cert).fingerprint256 }],
      },
      identity: "shop",
    };
  },
};

test.each(Object.keys(AUTHENTICATIONS))(
  "a webhook's %s is tried before it is stored, sent with its deliveries, and shown to nobody",
  async (name) => {
    const start = AUTHENTICATIONS[name] as () => Promise<Authenticated>;
    const { url, seen, right, kept, wrong, refusal, masked, identity } = await start();
    const webhookId = await service.register(url);
    const tried = (settings: Settings) => service.webhooks.tryWebhookRequest({ webhookId, settings });
    const stored = async () => (await service.webhooks.getWebhookRequestSettings({ webhookId })).settings;
    expect(await tried(wrong)).toMatchObject({ accepted: false, ...refusal });
    expect(await tried(right)).toMatchObject({ accepted: true, status: 200 });
    expect(seen().at(-1)).toEqual(identity);
    expect(await stored()).toMatchObject(NOTHING);

    const { settings } = await set(webhookId, right);
    expect(settings).toMatchObject(masked);
    expect(await stored()).toEqual(settings);
    expect((await deliver(webhookId)).delivery).toMatchObject({
      state: DeliveryState.DELIVERED,
      attemptCount: 1,
    });
    expect(seen().at(-1)).toEqual(identity);
    expect(await tried(kept)).toMatchObject({ accepted: true });
    expect(seen().at(-1)).toEqual(identity);

    const row = await service.db("webhooks").where({ id: webhookId }).first<{ request_settings: Buffer }>();
    const audit = createClient(AuditService, service.transport);
    const { entries } = await audit.listAuditEntries({ targetId: String(webhookId) });
    expect(entries.some(({ changes }) => changes.length > 0)).toBe(true);
    const { rows: records } = await service.db.raw("select to_jsonb(a)::text as text from all_attempts a");
    const texts = [json(entries), json(settings), json(records), row?.request_settings.toString("latin1")];
    for (const text of texts)
      expect(text).not.toMatch(new RegExp(`${SECRET}|token-\\d|PRIVATE KEY|MIG[A-Z]`));

    expect((await set(webhookId, {})).settings).toMatchObject(NOTHING);
    expect(await stored()).not.toHaveProperty("clientCertificate");
  },
);

test("an access token that the receiver refuses is replaced for the next attempt; without one, nothing is sent", async () => {
  const server = await authorizationServer();
  const renewed = await service.endpoint(({ headers: { authorization } }) =>
    authorization === "Bearer token-2" ? 200 : 401,
  );
  const { webhookId } = renewed;
  await set(webhookId, { authentication: oauth2(server, SECRET, "renewed") });
  const { delivery, attempts } = await deliver(webhookId);
  expect(delivery?.state).toBe(DeliveryState.DELIVERED);
  expect(attempts.map(({ status }) => status)).toEqual([401, 200]);

  await set(webhookId, { authentication: oauth2(server, `wrong-${SECRET}`, "wrong") });
  const without = await deliver(webhookId);
  expect(without.delivery).toMatchObject({ state: DeliveryState.FAILED, attemptCount: 4 });
  for (const { error, signatureHeaders } of without.attempts) {
    expect(error).toBe(`token endpoint localhost:${server.port} ${INVALID_CLIENT}`);
    expect(signatureHeaders).toEqual([]);
  }
  expect(renewed.received).toHaveLength(2);
});

test("deliveries, test requests and token requests go through DELIVERY_PROXY, and wait while it is away", async () => {
  const server = await authorizationServer();
  const receiver = await service.endpoint();
  const { webhookId } = receiver;
  const settings = { authentication: oauth2(server, SECRET, "proxied") };
  await set(webhookId, settings);
  const known = proxy.targets.length;
  await service.webhooks.tryWebhookRequest({ webhookId, settings });
  await deliver(webhookId);
  const [tokens, orders] = [server, receiver].map(({ port }) => `127.0.0.1:${port}`);
  expect(proxy.targets.slice(known)).toEqual([tokens, orders, tokens, orders]);

  await proxy.close();
  let tries = 0;
  const dead = createTcpServer((socket) => {
    tries += 1;
    socket.on("error", () => {}).destroy();
  });
  await new Promise<void>((resolve) => dead.listen(proxy.port, "127.0.0.1", resolve));
  const trial = await service.webhooks.tryWebhookRequest({ webhookId, settings });
  expect(trial.error).toMatch(/^the outbound proxy is unavailable/);
  tries = 0;
  const { eventId } = await service.publish();
  // The second try shows that the first one has ended, and that its delivery waits.
  await expect.poll(() => tries).toBeGreaterThan(1);
  const { deliveries } = await service.deliveries.listDeliveries({ eventId });
  expect(deliveries).toMatchObject([{ attemptCount: 0 }]);
  await new Promise((resolve) => dead.close(resolve));
  proxy = await startConnectProxy({ credentials: CREDENTIALS, port: proxy.port });
  await service.untilDelivered(eventId, 1);
});

test("settings and secrets that were sealed for another webhook fail its deliveries with the reason", async () => {
  const endpoints = await Promise.all([service.endpoint(), service.endpoint(), service.endpoint()]);
  const [donor, settings, secret] = endpoints.map(({ webhookId }) => webhookId) as [bigint, bigint, bigint];
  await set(donor, { headers: [{ name: "X-Tenant", value: SECRET }] });
  const copy = (column: string, to: bigint) =>
    service.db.raw("update webhooks w set ?? = o.?? from webhooks o where w.id = ? and o.id = ?", [
      column,
      column,
      String(to),
      String(donor),
    ]);
  // What a process keeps in memory is no help.
  await deliver(donor);
  await copy("request_settings", settings);
  await copy("secret", secret);
  const { eventId } = await service.publish();
  const deliveries = await service.untilFinal(eventId);
  const errors = new Map(deliveries.map(({ webhookId, error }) => [webhookId, error]));
  expect(errors.get(donor)).toBeUndefined();
  expect(errors.get(settings)).toContain("headers and credentials cannot be decrypted");
  expect(errors.get(secret)).toContain("signing secret cannot be decrypted");
  const read = service.webhooks.getWebhookRequestSettings({ webhookId: settings });
  await expectRefused(read, Code.FailedPrecondition);

  await service.webhooks.setWebhookRequestSettings({ webhookId: settings });
  await service.webhooks.rotateWebhookSecret({ webhookId: secret, revokeOldSecrets: true });
  for (const { state } of await service.untilFinal((await service.publish()).eventId))
    expect(state).toBe(DeliveryState.DELIVERED);
});

const OWNED = [
  ...["Host", "content-type", "CONTENT-LENGTH", "X-Service-UserId", "webhook-signature", "User-Agent"],
  ...["Proxy-Authorization", "Transfer-Encoding", "", "a b", "ä", "x\r\ny"],
];
const BAD_VALUES = [
  `${SECRET}\r\nX-Evil: 1`,
  ` ${SECRET}`,
  `${SECRET} `,
  `${SECRET}ü`,
  "",
  "h".repeat(4_097),
];
const headersOf = (...names: string[]) => ({ headers: names.map((name) => ({ name, value: SECRET })) });
const tokensOf = (tokenUrl: string, scope = ""): Settings => ({
  authentication: { case: "oauth2", value: { tokenUrl, clientId: "id", clientSecret: SECRET, scope } },
});

test("settings that cannot be used are refused with what is allowed, and no error repeats a value", async () => {
  const webhookId = await service.register("https://receiver.example/refused");
  const past = { notBefore: new Date(1_000), notAfter: new Date(2_000), client: true };
  const expired = await authority.issue(["expired"], past);
  const { cert, key } = shop;
  const encryption = { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "x" } as const;
  const locked = String(createPrivateKey(key).export(encryption));
  const client = (more: { certificate?: string; key?: string }): Settings => ({
    tls: { clientCertificate: { ...clientCertificate(shop), ...more } },
  });
  const ofNew = (clientCertificate: { certificate?: string }): Settings => ({ tls: { clientCertificate } });
  const trusting = (certificates?: string): Settings => ({
    tls: { authorities: certificates ? { certificates } : {} },
  });
  const [http, https] = ["http://login.example/token", "https://login.example/token"];
  const cases: [Settings, string][] = [
    ...OWNED.map((name): [Settings, string] => [headersOf(name), "settings.headers[0].name"]),
    ...BAD_VALUES.map((value): [Settings, string] => [
      { headers: [{ name: "X-A", value }] },
      "settings.headers[0].value must",
    ]),
    [headersOf("X-A", "x-a"), "send each name once"],
    [headersOf(...Array.from({ length: 21 }, (_, n) => `X-${n}`)), "must be at most 20"],
    [{ authentication: bearer(`${SECRET} ${SECRET}`) }, "settings.bearer.token must"],
    [{ ...headersOf("authorization"), authentication: bearer(SECRET) }, "must not contain Authorization"],
    [{ authentication: basic(SECRET, "a:b") }, "must not contain a colon"],
    [tokensOf(http, 'a  "b'), "settings.oauth2.token_url begins with http://; only https"],
    [tokensOf(https, 'a  "b'), "settings.oauth2.scope must have"],
    [tokensOf("https://10.0.0.1/token"), "10.0.0.1 is a private address"],
    [tokensOf("https://login.example:25/token"), "port 25"],
    [client({ key: other.key }), "settings.tls.client_certificate.key is a key that does not belong"],
    [client({ key: SECRET }), "client_certificate.key must be a private key in PEM"],
    [client({ key: locked }), "client_certificate.key is encrypted with a password"],
    [client({ key: "x".repeat(16_385) }), "client_certificate.key has 16385 characters; at most 16384"],
    [client({ certificate: SECRET }), "client_certificate.certificate must hold 1 to 10 certificates"],
    [client({ certificate: cert.replace(/M/g, "N") }), "certificate 1 cannot be read"],
    [client({ certificate: cert.repeat(11) }), "must hold 1 to 10 certificates"],
    [client({ certificate: expired.cert, key: expired.key }), "certificate 1 expired at"],
    [ofNew({}), "client_certificate.certificate is required: none is stored"],
    [ofNew({ certificate: cert }), "client_certificate.key is required: none is stored"],
    [trusting(), "authorities.certificates is required: none are stored"],
    [trusting(key), "authorities.certificates must hold"],
    [trusting(cert + expired.cert), "certificate 2 expired at"],
  ];
  for (const [settings, words] of cases) {
    const { rawMessage } = await expectRefused(set(webhookId, settings), Code.InvalidArgument, words);
    expect(rawMessage, words).not.toMatch(new RegExp(`${SECRET}|MIG|BEGIN PRIVATE KEY-----\n`));
  }
});

test("a stored secret is kept for the user, client, token URL and certificate that it was stored with, and no other", async () => {
  const webhookId = await service.register("https://receiver.example/kept");
  const [server, another] = [await authorizationServer(), await authorizationServer()];
  const by = (authentication: Authentication): Settings => ({ authentication });
  const needsSecret = "settings.oauth2.client_secret is required";
  const cases: [Settings, Settings, string][] = [
    [by(basic(SECRET)), by(basic("", "other")), "settings.basic.password is required"],
    [by(oauth2(server, SECRET)), by(oauth2(server, "", "other")), needsSecret],
    [by(oauth2(server, SECRET)), by(oauth2(another)), needsSecret],
    [
      { tls: { clientCertificate: clientCertificate(shop) } },
      { tls: { clientCertificate: { certificate: other.cert } } },
      "the stored key does not belong to the certificate",
    ],
  ];
  for (const [stored, changed, words] of cases) {
    await set(webhookId, stored);
    const trial = () => service.webhooks.tryWebhookRequest({ webhookId, settings: changed });
    for (const call of [() => set(webhookId, changed), trial])
      await expectRefused(call(), Code.InvalidArgument, words);
  }
  expect(another.received).toEqual([]);
  const same = { tls: { clientCertificate: { certificate: shop.cert } } };
  expect((await set(webhookId, same)).settings?.clientCertificate?.subject).toBe("CN=shop");
});

test("a client certificate without a subject is saved, and shown by its alternative names", async () => {
  const webhookId = await service.register("https://receiver.example/no-subject");
  const nameless = await authority.issue(["shop.example"], { client: true, subject: "" });
  const { settings } = await set(webhookId, { tls: { clientCertificate: clientCertificate(nameless) } });
  expect(settings?.clientCertificate).toMatchObject({
    subject: "DNS:shop.example",
    fingerprintSha256: new X509Certificate(nameless.cert).fingerprint256,
  });
});
