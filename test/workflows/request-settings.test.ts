import { randomBytes, X509Certificate } from "node:crypto";
import { createServer } from "node:net";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { createLocalAuthority } from "../../demo/certificates.ts";
import type { Receiver } from "../../demo/receiver.ts";
import { AuditService } from "../../gen/webhook/v1/audit_pb.ts";
import { DeliveryState } from "../../gen/webhook/v1/delivery_pb.ts";
import type { RequestSettingsSchema } from "../../gen/webhook/v1/request_settings_pb.ts";
import { sealRequestSettings } from "../../src/webhooks/request-settings.ts";
import { createSecretBox } from "../../src/webhooks/secret-box.ts";
import { startConnectProxy, type TestProxy } from "../lib/egress/proxies.ts";
import { aReceiver } from "../support/receivers.ts";
import { expectRefused } from "../support/refusals.ts";
import { startTestService, type TestService, WOKEN } from "../support/test-service.ts";

type Settings = MessageInitShape<typeof RequestSettingsSchema>;
type Authentication = NonNullable<Settings["authentication"]>;

/** Part of each secret that these tests send. No answer, record or log entry has it. */
const SECRET = "hush-4711";
const CREDENTIALS = `egress:${SECRET}`;
const SECRET_KEY = randomBytes(32);
const INVALID_CLIENT =
  "answered 401 (invalid_client); it got the client's id and secret in the header Authorization and in the body (secret_in_body): check both";

let service: TestService;
let proxy: TestProxy;
beforeAll(async () => {
  proxy = await startConnectProxy({ credentials: CREDENTIALS });
  service = await startTestService({
    ...WOKEN,
    SECRET_KEY: SECRET_KEY.toString("base64"),
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
  return service.deliveries.getDelivery({ deliveryId: id });
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

const basic = (password?: string, username = "shop"): Authentication => ({
  case: "basic",
  value: { username, ...(password ? { password } : {}) },
});
const oauth2 = ({ url }: Receiver, secret?: string, clientId = "shop"): Authentication => ({
  case: "oauth2",
  value: { tokenUrl: `${url}/token`, clientId, scope: "orders", ...(secret ? { clientSecret: secret } : {}) },
});

/** Ways to authenticate; without a secret, the stored one is kept. What wrong secrets are answered is the receiver's, or: */
const AUTHENTICATIONS: {
  name: string;
  by: (server: Receiver) => (secret?: string) => Authentication;
  identity: RegExp;
  masked: (server: Receiver) => object;
  refusal?: (server: Receiver) => object;
}[] = [
  {
    name: "bearer token",
    by: () => (token) => ({ case: "bearer", value: token ? { token } : {} }),
    identity: new RegExp(`^Bearer ${SECRET}$`),
    masked: () => ({ hasBearerToken: true }),
  },
  {
    name: "password",
    by: () => (secret) => basic(secret),
    identity: new RegExp(`^Basic ${btoa(`shop:${SECRET}`)}$`),
    masked: () => ({ basicUsername: "shop", hasBearerToken: false }),
  },
  {
    name: "access token",
    by: (server) => (secret) => oauth2(server, secret),
    identity: /^Bearer token-\d$/,
    masked: ({ url }) => ({ oauth2: { tokenUrl: `${url}/token`, clientId: "shop", scope: "orders" } }),
    refusal: ({ port }) => ({ error: `token endpoint localhost:${port} ${INVALID_CLIENT}` }),
  },
];

test.each(AUTHENTICATIONS)(
  "a webhook's $name and client certificate are tried before they are stored, sent with its deliveries, and shown to nobody",
  async ({ by, identity, masked, refusal = () => ({ status: 401, responseStart: "answered 401" }) }) => {
    // The service's process does not trust it.
    const authority = await createLocalAuthority();
    const demands = { requestCert: true, rejectUnauthorized: true, ca: authority.cert };
    const { received, url } = await aReceiver(
      ({ headers }) => (identity.test(headers.authorization ?? "") ? 200 : 401),
      { ...(await authority.issue(["localhost"])), ...demands },
    );
    const { cert: certificate, key } = await authority.issue(["shop"], { client: true });
    const server = await authorizationServer();
    const authentication = by(server);
    const withSecret = (secret: string, certificates?: string): Settings => ({
      authentication: authentication(secret),
      headers: [{ name: "X-Tenant", value: "4711" }],
      tls: {
        clientCertificate: { certificate, key },
        ...(certificates ? { authorities: { certificates } } : {}),
      },
    });
    const kept: Settings = {
      authentication: authentication(),
      headers: [{ name: "X-Tenant" }],
      tls: { clientCertificate: {}, authorities: {} },
    };
    const right = withSecret(SECRET, authority.cert);
    const webhookId = await service.register(`${url}/orders`);
    const tried = (settings: Settings) => service.webhooks.tryWebhookRequest({ webhookId, settings });
    const stored = async () => (await service.webhooks.getWebhookRequestSettings({ webhookId })).settings;
    const expectSent = (requests: number) => {
      expect(received).toHaveLength(requests);
      const { authorization, "x-tenant": tenant } = received.at(-1)?.headers ?? {};
      expect([authorization, tenant]).toEqual([expect.stringMatching(identity), "4711"]);
    };
    const wrong = withSecret(`wrong-${SECRET}`, authority.cert);
    expect(await tried(wrong)).toMatchObject({ accepted: false, ...refusal(server) });
    const error = expect.stringContaining("unknown authority");
    expect(await tried(withSecret(SECRET))).toMatchObject({ accepted: false, error });
    received.length = 0;
    expect(await tried(right)).toMatchObject({ accepted: true, status: 200 });
    expectSent(1);
    expect(await stored()).toMatchObject({ headerNames: [], hasBearerToken: false, authorities: [] });

    const { settings } = await set(webhookId, right);
    const { issuer, fingerprint256, validToDate } = new X509Certificate(certificate);
    expect(settings).toMatchObject({
      headerNames: ["X-Tenant"],
      ...masked(server),
      clientCertificate: {
        subject: "CN=shop",
        issuer,
        fingerprintSha256: fingerprint256,
        expires: timestampFromDate(validToDate),
      },
      authorities: [{ fingerprintSha256: new X509Certificate(authority.cert).fingerprint256 }],
    });
    expect(await stored()).toEqual(settings);
    const delivered = { state: DeliveryState.DELIVERED, attemptCount: 1 };
    expect((await deliver(webhookId)).delivery).toMatchObject(delivered);
    expectSent(2);
    expect(await tried(kept)).toMatchObject({ accepted: true });
    expectSent(3);

    const row = await service.db("webhooks").where({ id: webhookId }).first<{ request_settings: Buffer }>();
    const audit = createClient(AuditService, service.transport);
    const { entries } = await audit.listAuditEntries({ targetId: String(webhookId) });
    expect(entries.some(({ changes }) => changes.length > 0)).toBe(true);
    const { rows: records } = await service.db.raw("select to_jsonb(a)::text as text from all_attempts a");
    const texts = [json(entries), json(settings), json(records), row?.request_settings.toString("latin1")];
    for (const text of texts)
      expect(text).not.toMatch(new RegExp(`${SECRET}|token-\\d|PRIVATE KEY|MIG[A-Z]`));

    expect((await set(webhookId, {})).settings).toMatchObject({ headerNames: [], hasBearerToken: false });
    expect(await stored()).not.toHaveProperty("clientCertificate");
  },
);

test.each(AUTHENTICATIONS)(
  "the response of a receiver that repeats its requests shows neither the $name nor the headers that were tried or stored",
  async ({ by }) => {
    const tenant = `tenant-${SECRET}`;
    const { webhookId, received } = await service.endpoint(({ headers }, response) => {
      const text = JSON.stringify(headers);
      response.writeHead(400, { "x-repeated": text }).end(`<script>${headers.authorization}</script>${text}`);
      return undefined;
    });
    const authentication = by(await authorizationServer());
    const settings = {
      authentication: authentication(SECRET),
      headers: [{ name: "X-Tenant", value: tenant }],
    };
    const tried = await service.webhooks.tryWebhookRequest({ webhookId, settings });
    await set(webhookId, settings);
    const { attempts } = await deliver(webhookId);
    const { authorization = "none", "x-tenant": sentTenant } = received[0]?.headers ?? {};
    expect(sentTenant).toBe(tenant);
    for (const { responseStart, responseHeaders } of [{ ...tried, responseHeaders: [] }, ...attempts]) {
      expect(responseStart).toMatch(/^<script>\[hidden\]<\/script>\{.*"x-tenant":"\[hidden\]"/);
      const texts = json([responseStart, responseHeaders]);
      for (const secret of [SECRET, tenant, authorization, authorization.split(" ")[1]])
        expect(texts).not.toContain(secret);
    }
    expect(attempts).toHaveLength(4);
  },
);

test("while a webhook moves between hosts, each host gets its own credentials only, in deliveries, retries and test requests", async () => {
  const hosts = await Promise.all(
    ["a", "b"].map(async (name) => ({
      name,
      ...(await service.receiver(({ attempt }) => (attempt > 1 ? 200 : 503))),
    })),
  );
  const own = ({ name }: { name: string }): Settings => ({
    authentication: { case: "bearer", value: { token: `for-${name}-${SECRET}` } },
    headers: [{ name: "X-Host", value: `${name}-${SECRET}` }],
  });
  const kept: Settings = { authentication: { case: "bearer", value: {} }, headers: [{ name: "X-Host" }] };
  const [first, second] = hosts as [(typeof hosts)[0], (typeof hosts)[0]];
  const webhookId = await service.register(`${first.url}/0`);
  await set(webhookId, own(first));
  const events: string[] = [];
  for (let n = 1; n <= 8; n += 1) {
    const host = n % 2 === 1 ? second : first;
    for (let each = 0; each < 3; each += 1) events.push((await service.publish()).eventId);
    const requestSettings = own(host);
    const move = service.webhooks.updateWebhook({ webhookId, url: `${host.url}/${n}`, requestSettings });
    // Stored values are those of the host that the webhook has when they are read.
    const [trial, change] = [
      service.webhooks.tryWebhookRequest({ webhookId, settings: kept }),
      set(webhookId, kept),
    ];
    const results = await Promise.allSettled([move, trial, change]);
    expect(results[0]?.status).toBe("fulfilled");
    for (const { reason } of results.filter((each) => each.status === "rejected"))
      expect(reason.message).toMatch(/was changed meanwhile/);
  }
  for (const eventId of events) await service.untilFinal(eventId);
  expect(first.received.length + second.received.length).toBeGreaterThanOrEqual(events.length);
  for (const { name, received } of hosts)
    for (const { headers } of received)
      expect([headers.authorization, headers["x-host"]]).toEqual([
        `Bearer for-${name}-${SECRET}`,
        `${name}-${SECRET}`,
      ]);
});

test("a header name that earlier versions stored is sent and kept, but gets no new value and no other host", async () => {
  const { webhookId, received } = await service.endpoint();
  const stored = { authentication: null, tls: null, headers: [{ name: "x_service.id", value: SECRET }] };
  const sealed = sealRequestSettings(createSecretBox(SECRET_KEY), webhookId, stored);
  await service
    .db("webhooks")
    .where({ id: webhookId })
    .update({ request_settings: sealed, revision: service.db.raw("revision + 1") });
  expect((await deliver(webhookId)).delivery?.state).toBe(DeliveryState.DELIVERED);
  const kept = { headers: [{ name: "X_Service.id" }, { name: "X-New", value: "1" }] };
  expect((await set(webhookId, kept)).settings?.headerNames).toEqual(["X_Service.id", "X-New"]);
  await deliver(webhookId);
  for (const { headers } of received) expect(headers["x_service.id"]).toBe(SECRET);
  expect(received).toHaveLength(2);
  const changed = { headers: [{ name: "x_service.id", value: "another" }] };
  await expectRefused(set(webhookId, changed), Code.InvalidArgument, "letters, digits and hyphens");
  const url = `https://receiver.example/${webhookId}`;
  const moved = service.webhooks.updateWebhook({ webhookId, url, requestSettings: kept });
  await expectRefused(moved, Code.InvalidArgument, "letters, digits and hyphens");
});

test("a stored secret is kept for the user, client, token URL and certificate that it was stored with, and no other", async () => {
  const webhookId = await service.register("https://receiver.example/kept");
  const [server, another] = [await authorizationServer(), await authorizationServer()];
  const authority = await createLocalAuthority();
  const [{ cert: certificate, key }, { cert: others }, nameless] = await Promise.all([
    authority.issue(["shop"], { client: true }),
    authority.issue(["other"], { client: true }),
    authority.issue(["shop.example"], { client: true, subject: "" }),
  ]);
  const by = (authentication: Authentication): Settings => ({ authentication });
  const having = (clientCertificate: { certificate: string; key?: string }) => ({
    tls: { clientCertificate },
  });
  const needsSecret = "settings.oauth2.client_secret is required";
  const cases: [Settings, Settings, string][] = [
    [by(basic(SECRET)), by(basic("", "other")), "settings.basic.password is required"],
    [by(oauth2(server, SECRET)), by(oauth2(server, "", "other")), needsSecret],
    [by(oauth2(server, SECRET)), by(oauth2(another)), needsSecret],
    [having({ certificate, key }), having({ certificate: others }), "the stored key does not belong to the"],
  ];
  for (const [stored, changed, words] of cases) {
    await set(webhookId, stored);
    const trial = () => service.webhooks.tryWebhookRequest({ webhookId, settings: changed });
    for (const call of [() => set(webhookId, changed), trial])
      await expectRefused(call(), Code.InvalidArgument, words);
  }
  expect(another.received).toEqual([]);
  expect((await set(webhookId, having({ certificate }))).settings?.clientCertificate?.subject).toBe(
    "CN=shop",
  );
  const shown = await set(webhookId, having({ certificate: nameless.cert, key: nameless.key }));
  expect(shown.settings?.clientCertificate?.subject).toBe("DNS:shop.example");
});

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
  const dead = createServer((socket) => {
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

test("a webhook whose host name does not resolve is registered with a warning", async () => {
  const made = await service.webhooks.createWebhook({ process: 1, url: "https://none.invalid/" });
  expect(made).toMatchObject({ created: true, warnings: [expect.stringContaining("none.invalid")] });
  const { url } = await service.receiver();
  const webhookId = made.webhook?.id as bigint;
  expect(await service.webhooks.updateWebhook({ webhookId, url })).toMatchObject({ warnings: [] });
});

test("settings and secrets that were sealed for another webhook fail its deliveries with the reason", async () => {
  const aWebhook = async () => (await service.endpoint()).webhookId;
  const [donor, settings, secret] = [await aWebhook(), await aWebhook(), await aWebhook()];
  await set(donor, { headers: [{ name: "X-Tenant", value: SECRET }] });
  const copy = async (column: string, id: bigint) =>
    service
      .db("webhooks")
      .where({ id })
      .update(await service.db("webhooks").where({ id: donor }).first(column));
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
  await expectRefused(
    service.webhooks.getWebhookRequestSettings({ webhookId: settings }),
    Code.FailedPrecondition,
  );

  await service.webhooks.setWebhookRequestSettings({ webhookId: settings });
  await service.webhooks.rotateWebhookSecret({ webhookId: secret, revokeOldSecrets: true });
  for (const { state } of await service.untilFinal((await service.publish()).eventId))
    expect(state).toBe(DeliveryState.DELIVERED);
});

test("a webhook's own timeout ends its attempts and its test requests", async () => {
  const { url } = await service.receiver(() => undefined);
  const webhookId = await service.register(`${url}/`);
  await service.webhooks.updateWebhook({ webhookId, timeoutMs: 1_000 });
  const error = expect.stringMatching(/^no response within 1 s; /);
  expect(await service.webhooks.tryWebhookRequest({ webhookId })).toMatchObject({ accepted: false, error });
  const { attempts } = await deliver(webhookId);
  expect(attempts.map((attempt) => attempt.error)).toEqual(attempts.map(() => error));
});
