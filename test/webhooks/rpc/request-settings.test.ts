import { createPrivateKey, generateKeyPairSync, randomUUID } from "node:crypto";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { expect, onTestFinished, test } from "vitest";
import { createLocalAuthority } from "../../../demo/certificates.ts";
import type { RequestSettingsSchema } from "../../../gen/webhook/v1/request_settings_pb.ts";
import { expectRefused } from "../../support/refusals.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { webhooks } = api;

type Settings = MessageInitShape<typeof RequestSettingsSchema>;
const header = (name: string) => ({ headers: [{ name, value: "4711" }] });
const bearer: Settings = { authentication: { case: "bearer", value: { token: "t" } } };
const read = (webhookId: bigint) => webhooks.getWebhookRequestSettings({ webhookId });
const namesOf = async (webhookId: bigint) => (await read(webhookId)).settings?.headerNames;

test("request settings come with the webhook's revision, which a change of them raises and equal settings do not", async () => {
  const webhookId = await api.register();
  expect((await read(webhookId)).revision).toBe(1n);
  for (const revision of [1n, 2n])
    await webhooks.setWebhookRequestSettings({ webhookId, revision, settings: header("X-One") });
  expect(await read(webhookId)).toMatchObject({ revision: 2n, settings: { headerNames: ["X-One"] } });
  const { webhook } = await webhooks.updateWebhook({ webhookId, name: "Shop" });
  expect(webhook?.revision).toBe(3n);
  const stale = webhooks.setWebhookRequestSettings({ webhookId, revision: 2n });
  await expectRefused(stale, Code.Aborted, "", "REVISION_CHANGED");
  expect(await namesOf(webhookId)).toEqual(["X-One"]);
  await webhooks.setWebhookRequestSettings({ webhookId });
  expect(await namesOf(webhookId)).toEqual([]);
});

test.each<[string, Settings]>([
  ["a header", header("X-One")],
  ["a bearer token", bearer],
])("with %s, only the path of a URL changes: no other host gets credentials", async (_, settings) => {
  const webhookId = await api.register();
  const { origin, host } = new URL((await webhooks.getWebhook({ webhookId })).webhook?.url ?? "");
  await webhooks.setWebhookRequestSettings({ webhookId, settings });
  const change = (url: string) => webhooks.updateWebhook({ webhookId, url });
  await change(`${origin}/another-${webhookId}`);
  const message = "send request_settings with the headers and credentials for that host";
  for (const url of ["https://thief.example/", `https://${host}.thief.example/`, `https://${host}:8443/`])
    await expectRefused(change(url), Code.FailedPrecondition, message);
  await webhooks.setWebhookRequestSettings({ webhookId });
  const moved = `https://shop-${webhookId}.example/`;
  expect((await change(moved)).webhook?.url).toBe(moved);
});

test.each<[string, string[]]>([
  [
    "keeps its credentials under another spelling of its host",
    [
      "https://SHOP.example/a",
      "https://shop.example./b",
      "https://shop.example:443/c",
      "https://shop\uff0eexample/d",
      "https://\uff53hop.example/e",
      "https://sho%70.example/f",
      "https:shop.example/g",
      "https://shop.example\\@thief.example/h",
    ],
  ],
  [
    "gives no credentials to a host that only looks like its own",
    [
      "https://thief.example\\@shop.example/",
      "https://shop.example%2ethief.example/",
      "https://shop.example\u3002thief.example/",
      "https://\u0455hop.example/",
      "https://shop.example:444/",
      "https://www.shop.example/",
      "https://example/",
    ],
  ],
  [
    "has no URL that can be misread",
    [
      "https://shop.example@thief.example/",
      "https://user:password@shop.example/",
      "https://shop.example..",
      "https://shop.ex\u00adample/",
      "https://shop.example\t.thief.example/",
      " https://shop.example/",
      "http://shop.example/",
    ],
  ],
])("a webhook %s", async (title, urls) => {
  const webhookId = await api.register({ url: "https://shop.example/hooks" });
  onTestFinished(async () => void (await webhooks.deleteWebhook({ webhookId })));
  await webhooks.setWebhookRequestSettings({ webhookId, settings: bearer });
  for (const url of urls) {
    const call = webhooks.updateWebhook({ webhookId, url });
    if (title.startsWith("keeps")) expect((await call).webhook?.url, url).toBe(url);
    else {
      const code = title.startsWith("gives") ? Code.FailedPrecondition : Code.InvalidArgument;
      await expectRefused(call, code, code === Code.FailedPrecondition ? "send request_settings" : "");
    }
  }
  expect((await read(webhookId)).settings?.hasBearerToken).toBe(true);
});

test("of a move and a change of settings at the same time, one is refused if both name the revision that they have read", async () => {
  for (let n = 0; n < 10; n += 1) {
    const webhookId = await api.register();
    await webhooks.setWebhookRequestSettings({ webhookId, settings: bearer });
    const { revision } = await read(webhookId);
    const url = `https://moved-${webhookId}.example/`;
    const [moved, changed] = await Promise.allSettled([
      webhooks.updateWebhook({ webhookId, revision, url, requestSettings: {} }),
      webhooks.setWebhookRequestSettings({ webhookId, revision, settings: header("X-Old-Host") }),
    ]);
    expect([moved.status, changed.status].sort()).toEqual(["fulfilled", "rejected"]);
    const { webhook } = await webhooks.getWebhook({ webhookId });
    const names = await namesOf(webhookId);
    if (webhook?.url === url) expect(names).toEqual([]);
    else expect(names).toEqual(["X-Old-Host"]);
  }
});

test("a move and a change that keeps stored values, at the same time, leave no stored value with the new host", async () => {
  for (let n = 0; n < 10; n += 1) {
    const webhookId = await api.register();
    await webhooks.setWebhookRequestSettings({ webhookId, settings: { ...header("X-One"), ...bearer } });
    const kept: Settings = {
      headers: [{ name: "X-One" }],
      authentication: { case: "bearer", value: {} },
    };
    const url = `https://moved-${webhookId}.example/`;
    const [moved, changed] = await Promise.allSettled([
      webhooks.updateWebhook({ webhookId, url, requestSettings: {} }),
      webhooks.setWebhookRequestSettings({ webhookId, settings: kept }),
    ]);
    expect(moved.status).toBe("fulfilled");
    if (changed.status === "rejected")
      expect(String(changed.reason)).toMatch(/is required: no value is stored/);
    expect((await read(webhookId)).settings).toMatchObject({ headerNames: [], hasBearerToken: false });
  }
});

test("all webhooks of an endpoint move together: none keeps credentials that the others have left", async () => {
  const url = `https://endpoint-${randomUUID()}.example/`;
  const { endpoint } = await api.endpoints.createEndpoint({ processes: [1, 2], url });
  const ids = endpoint?.webhooks.map(({ id }) => id) as [bigint, bigint];
  await webhooks.setWebhookRequestSettings({ webhookId: ids[0], settings: bearer });
  for (const webhookId of ids) {
    const call = webhooks.updateWebhook({ webhookId, url: "https://thief.example/" });
    await expectRefused(call, Code.FailedPrecondition, "send request_settings");
  }
  const moved = `https://moved-${randomUUID()}.example/`;
  await webhooks.updateWebhook({ webhookId: ids[1], url: moved, requestSettings: header("X-New") });
  for (const webhookId of ids) {
    expect((await webhooks.getWebhook({ webhookId })).webhook?.url).toBe(moved);
    expect((await read(webhookId)).settings).toMatchObject({ headerNames: ["X-New"], hasBearerToken: false });
  }
});

test("a client certificate moves with its webhook, since its key is never sent; so do its authorities", async () => {
  const webhookId = await api.register();
  const tls = {
    clientCertificate: { certificate: cert, key },
    authorities: { certificates: authority.cert },
  };
  await webhooks.setWebhookRequestSettings({ webhookId, settings: { tls } });
  const { settings } = await read(webhookId);
  await webhooks.updateWebhook({ webhookId, url: `https://moved-${webhookId}.example/` });
  expect((await read(webhookId)).settings).toEqual(settings);
});

test("a URL of another host comes with new values of headers and credentials, in one change; stored ones are not kept", async () => {
  const webhookId = await api.register();
  await webhooks.setWebhookRequestSettings({ webhookId, settings: header("X-One") });
  const before = await read(webhookId);
  const url = `https://moved-${webhookId}.example/`;
  const unset = { headers: [{ name: "X-One" }] };
  const refused = webhooks.updateWebhook({ webhookId, url, requestSettings: unset });
  await expectRefused(refused, Code.InvalidArgument, "request_settings.headers[0].value is required");
  expect(await read(webhookId)).toEqual(before);
  const requestSettings = { ...header("X-One"), ...bearer };
  const { revision } = before;
  const { webhook } = await webhooks.updateWebhook({ webhookId, url, requestSettings, revision });
  const after = await read(webhookId);
  expect(webhook).toMatchObject({ url, revision: after.revision });
  expect(after.settings).toMatchObject({ headerNames: ["X-One"], hasBearerToken: true });
  const { entries } = await api.audit.listAuditEntries({ targetId: String(webhookId) });
  expect(entries[0]?.changes.map(({ field }) => field).sort()).toEqual(["authentication", "url"]);
  // The host stays: values that are unset are kept.
  await webhooks.updateWebhook({ webhookId, url: `${url}path`, requestSettings: unset });
  expect((await read(webhookId)).settings).toMatchObject({ headerNames: ["X-One"], hasBearerToken: false });
  await webhooks.updateWebhook({ webhookId, requestSettings: {} });
  expect(await namesOf(webhookId)).toEqual([]);
});

test("request settings are read without what is secret of them", async () => {
  const webhookId = await api.register();
  const user: Settings = {
    authentication: { case: "basic", value: { username: "user", password: "hush" } },
  };
  for (const [settings, basicUsername, hasBearerToken] of [
    [{}, undefined, false],
    [bearer, undefined, true],
    [user, "user", false],
  ] as const) {
    await webhooks.setWebhookRequestSettings({ webhookId, settings: { ...header("X-One"), ...settings } });
    const { settings: found } = await read(webhookId);
    const shown = [found?.headerNames, found?.basicUsername, found?.hasBearerToken];
    expect(shown).toEqual([["X-One"], basicUsername, hasBearerToken]);
  }
});

const SECRET = "hush-0123456789";
const authority = await createLocalAuthority();
const { cert, key } = await authority.issue(["shop"], { client: true });
const other = await authority.issue(["other"], { client: true });
const past = { notBefore: new Date(1_000), notAfter: new Date(2_000), client: true };
const expired = await authority.issue(["expired"], past);
const encryption = { type: "pkcs8", format: "pem", cipher: "aes-256-cbc", passphrase: "x" } as const;
const locked = String(createPrivateKey(key).export(encryption));
const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 4_104 });
const long = privateKey.export({ type: "pkcs8", format: "pem" }).toString();

const named = (...names: string[]) => ({ headers: names.map((name) => ({ name, value: SECRET })) });
const valued = (value: string) => ({ headers: [{ name: "X-A", value }] });
const basic = (username: string, password = SECRET): Settings => ({
  authentication: { case: "basic", value: { username, password } },
});
const tokens = (tokenUrl: string, scope = ""): Settings => ({
  authentication: { case: "oauth2", value: { tokenUrl, clientId: "id", clientSecret: SECRET, scope } },
});
const token = (text: string): Settings => ({ authentication: { case: "bearer", value: { token: text } } });
const oauth2 = (more: { clientId?: string; clientSecret?: string }): Settings => ({
  authentication: {
    case: "oauth2",
    value: { tokenUrl: "https://login.example/token", clientId: "id", clientSecret: SECRET, ...more },
  },
});
const client = (clientCertificate: object): Settings => ({ tls: { clientCertificate } });
const trusting = (authorities: object): Settings => ({ tls: { authorities } });
const OWNED = [
  ...["Host", "content-type", "CONTENT-LENGTH", "X-Service-UserId", "webhook-signature", "User-Agent"],
  ...["Proxy-Authorization", "Transfer-Encoding", "traceparent", "Tracestate"],
];
/** Names that CGI servers take for these. */
const MERGED = ["x_service_userid", "webhook_id", "x.service.userid", "Content_Type", "x|service!userid"];
const http = "http://login.example/token";
const https = "https://login.example/token";

test.each<[string, Settings[]]>([
  ["headers[0].name is", OWNED.map((name) => named(name))],
  [
    "headers[0].name must be a header name of 1 to 100 letters, digits and",
    [...MERGED, "a b", "ä", "x\r\ny", "X".repeat(101)].map((name) => named(name)),
  ],
  ["headers[0].value must", [`${SECRET}\r\nX-Evil: 1`, `${SECRET}\0`, "h".repeat(16_385)].map(valued)],
  ["send each name once", [named("X-A", "x-a")]],
  ["must be at most 20", [named(...Array.from({ length: 21 }, (_, n) => `X-${n}`))]],
  ["bearer.token must", ["", " ", `${SECRET}\n`].map(token)],
  ["oauth2.client_id is required", [oauth2({ clientId: "" })]],
  ["oauth2.client_secret must", [oauth2({ clientSecret: `${SECRET}\n` })]],
  ["must not contain Authorization", [{ ...named("authorization"), ...bearer }]],
  ["must not contain a colon", [basic("a:b")]],
  ["oauth2.token_url begins with http://; only https", [tokens(http, "a\nb")]],
  ["oauth2.scope must have", [tokens(https, "a\nb")]],
  ["10.0.0.1 is a private address", [tokens("https://10.0.0.1/token")]],
  ["port 25", [tokens("https://login.example:25/token")]],
  ["client_certificate.key is a key that does not belong", [client({ certificate: cert, key: other.key })]],
  [
    "client_certificate.key must be a private key in PEM",
    [SECRET, "x".repeat(16_384)].map((text) => client({ certificate: cert, key: text })),
  ],
  ["client_certificate.key is encrypted with a password", [client({ certificate: cert, key: locked })]],
  [
    "client_certificate.key has 16385 characters; at most 16384",
    [client({ certificate: cert, key: "x".repeat(16_385) })],
  ],
  [
    "client_certificate.key has 4104 bits; at most 4096 are allowed: use a shorter RSA key, or an elliptic curve",
    [client({ certificate: cert, key: long })],
  ],
  [
    "client_certificate.certificate must hold 1 to 300 certificates",
    [SECRET, cert.repeat(301)].map((certificate) => client({ certificate, key })),
  ],
  ["certificate 1 cannot be read", [client({ certificate: cert.replace(/M/g, "N"), key })]],
  [
    "certificate 1 expired at",
    [expired.cert, expired.cert + cert].map((certificate) => client({ certificate, key: expired.key })),
  ],
  [
    "authorities.certificates has 524289 characters; at most 524288",
    [trusting({ certificates: " ".repeat(524_289) })],
  ],
  ["client_certificate.certificate is required: none is stored", [client({})]],
  ["client_certificate.key is required: none is stored", [client({ certificate: cert })]],
  ["authorities.certificates is required: none are stored", [trusting({})]],
  ["authorities.certificates must hold", [trusting({ certificates: key })]],
  [
    "authorities.certificates certificate 1 expired at",
    [trusting({ certificates: expired.cert + expired.cert })],
  ],
])("settings that cannot be used are refused, and no error repeats a value: %s", async (words, refused) => {
  const webhookId = await api.register();
  for (const settings of refused) {
    const call = webhooks.setWebhookRequestSettings({ webhookId, settings });
    const { rawMessage } = await expectRefused(call, Code.InvalidArgument, words);
    expect(rawMessage).not.toMatch(new RegExp(`${SECRET}|MIG|BEGIN PRIVATE KEY-----\n`));
  }
  expect((await read(webhookId)).revision).toBe(1n);
});

test.each<[what: string, settings: Settings]>([
  ["Basic without a user", basic("")],
  ["Basic without a password", basic("user", "")],
  ["Basic with neither", basic("", "")],
  ["Basic with other characters than ASCII", basic("käufer", "pässword")],
  ["Basic with spaces and colons", basic("shop 1", " a:b ")],
  ["a bearer token with a bar", token("5|abcDEF")],
  ["a bearer token with a colon", token("user:tok")],
  ["a long bearer token", token("eyJ.".repeat(4_096))],
  ["an OAuth 2.0 client without a secret", oauth2({ clientId: "3f2a-11_a", clientSecret: "" })],
  [
    "an OAuth 2.0 client that is a URL",
    oauth2({ clientId: "https://app.example/", clientSecret: "s-e_c.r~t ü" }),
  ],
  ["scopes with double spaces", tokens(https, 'a  "b')],
  [
    "20 headers of many kinds",
    named(
      ...[
        "x",
        "Ocp-Apim-Subscription-Key",
        "Webhook-Tenant",
        ...Array.from({ length: 17 }, (_, n) => `X-${n}`),
      ],
    ),
  ],
  ["an empty header", valued("")],
  ["a header with white space around it", valued(`\t${SECRET} `)],
  ["a header with other characters than ASCII", valued("Größe €")],
])("settings of real systems are taken: %s", async (_, settings) => {
  const webhookId = await api.register();
  await webhooks.setWebhookRequestSettings({ webhookId, settings });
  const { revision } = await read(webhookId);
  // The same again changes nothing, with what is stored too.
  await webhooks.setWebhookRequestSettings({ webhookId, settings });
  const { authentication, headers = [] } = settings;
  const kept = { case: authentication?.case, value: { ...authentication?.value } };
  for (const name of ["password", "token", "clientSecret"])
    delete (kept.value as Record<string, unknown>)[name];
  await webhooks.setWebhookRequestSettings({
    webhookId,
    settings: {
      headers: headers.map(({ name = "" }) => ({ name })),
      ...(authentication?.case ? { authentication: kept as NonNullable<Settings["authentication"]> } : {}),
    },
  });
  expect((await read(webhookId)).revision).toBe(revision);
});

test("a bundle of 300 certificates is taken, up to 512 KiB, without the expired ones, of which a warning tells", async () => {
  const webhookId = await api.register();
  const others = (await Promise.all(Array.from({ length: 3 }, (_, n) => authority.issue([`ca-${n}`])))).map(
    (each) => each.cert.replaceAll("CERTIFICATE-", "X509 CERTIFICATE-").replaceAll("\n", "\r\n"),
  );
  const some = [...others, expired.cert, authority.cert];
  const text = Array.from({ length: 300 }, (_, n) => `# Issuer: ${n}\n${some[n % some.length]}`).join("\n");
  const certificates = text + " ".repeat(524_288 - text.length);
  const settings = { tls: { authorities: { certificates } } };
  const warning =
    /^settings\.tls\.authorities\.certificates: certificate 4 expired at 1970-01-01T00:00:02\.000Z, .* and 50 more; left out$/;
  const tried = await webhooks.setWebhookRequestSettings({ webhookId, settings });
  expect([tried.settings?.authorities.length, tried.warnings]).toEqual([
    240,
    [expect.stringMatching(warning)],
  ]);
  const { entries } = await api.audit.listAuditEntries({ targetId: String(webhookId) });
  const change = entries[0]?.changes.find(({ field }) => field === "authorities");
  expect(change?.after).toMatch(/and 230 more \(SHA-256 of all [0-9a-f]{64}\)/);
  const updated = await webhooks.updateWebhook({ webhookId, requestSettings: settings });
  expect(updated.warnings).toEqual([expect.stringMatching(/^request_settings\.tls\.authorities/)]);
  const chain = { certificate: cert + expired.cert + authority.cert, key };
  const { warnings } = await webhooks.setWebhookRequestSettings({ webhookId, settings: client(chain) });
  expect(warnings).toEqual([
    "settings.tls.client_certificate.certificate: certificate 2 expired at 1970-01-01T00:00:02.000Z; left out",
  ]);
});

test("a rate limit is stored, removed by leaving it out, and refused beyond what is allowed", async () => {
  const webhookId = await api.register();
  const set = async (limit: { rateLimit?: number }) =>
    (await webhooks.setWebhookRateLimit({ webhookId, ...limit })).webhook?.rateLimit;
  expect([await set({ rateLimit: 5 }), await set({})]).toEqual([5, undefined]);
  for (const rateLimit of [0, -1, 10_001])
    await expectRefused(set({ rateLimit }), Code.InvalidArgument, "rate_limit must be 1 to 10000");
});
