import { generateKeyPair } from "node:crypto";
import { promisify } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { createLocalAuthority } from "../../../../demo/certificates.ts";
import type { RequestSettingsSchema } from "../../../../gen/webhook/v1/request_settings_pb.ts";
import { expectRefused } from "../../../support/refusals.ts";
import { useApi } from "../../../support/test-api.ts";

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

test.each(["traceparent", "Tracestate"])(
  "a custom header %s is refused, as DELIVERY_TRACEPARENT would send a second one",
  async (name) => {
    const webhookId = await api.register();
    const call = webhooks.setWebhookRequestSettings({ webhookId, settings: header(name) });
    const message = `settings.headers[0].name is ${name}, which HTTP or this service sets`;
    await expectRefused(call, Code.InvalidArgument, message);
    expect(await namesOf(webhookId)).toEqual([]);
  },
);

test.each<[string, Settings]>([
  ["a header", header("X-One")],
  ["a bearer token", bearer],
])(
  "stored credentials do not go to another host: with %s, only the path of a URL can be changed",
  async (_, settings) => {
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
  },
);

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

test.each<[string, Settings, object]>([
  ["a bearer token", bearer, { hasBearerToken: true }],
  [
    "a user and a password",
    { authentication: { case: "basic", value: { username: "user", password: "hush" } } },
    { basicUsername: "user" },
  ],
])("request settings with %s are read without what is secret of them", async (_, settings, expected) => {
  const webhookId = await api.register();
  const none = await read(webhookId);
  expect([none.settings?.basicUsername, none.settings?.hasBearerToken]).toEqual([undefined, false]);
  await webhooks.setWebhookRequestSettings({ webhookId, settings: { ...header("X-One"), ...settings } });
  expect((await read(webhookId)).settings).toMatchObject({ headerNames: ["X-One"], ...expected });
});

test("authorities that are not stored are required", async () => {
  const call = webhooks.setWebhookRequestSettings({
    webhookId: await api.register(),
    settings: { tls: { authorities: {} } },
  });
  await expectRefused(call, Code.InvalidArgument, "settings.tls.authorities.certificates is required");
});

test("an RSA key of a client certificate that takes long to sign with is refused", async () => {
  const webhookId = await api.register();
  const { cert: certificate } = await (await createLocalAuthority()).issue(["shop"], { client: true });
  const { privateKey } = await promisify(generateKeyPair)("rsa", { modulusLength: 4_104 });
  const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  const settings = { tls: { clientCertificate: { certificate, key } } };
  await expectRefused(
    webhooks.setWebhookRequestSettings({ webhookId, settings }),
    Code.InvalidArgument,
    /^settings\.tls\.client_certificate\.key has 4104 bits; at most 4096 are allowed: use a shorter RSA key, or an elliptic curve$/,
  );
});
