import { generateKeyPair } from "node:crypto";
import { promisify } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { createLocalAuthority } from "../../../../demo/certificates.ts";
import { ErrorInfoSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import { AuditService } from "../../../../gen/webhook/v1/audit_pb.ts";
import { EndpointService } from "../../../../gen/webhook/v1/endpoint_pb.ts";
import type { RequestSettingsSchema } from "../../../../gen/webhook/v1/request_settings_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { failure } from "../../../support/failure.ts";
import { useApi } from "../../../support/test-api.ts";

const api = await useApi();
const audit = api.client(AuditService);
const webhooks = api.client(WebhookService);

const header = (name: string) => ({ headers: [{ name, value: "4711" }] });
const read = (webhookId: bigint) => webhooks.getWebhookRequestSettings({ webhookId });
const revisionOf = async (webhookId: bigint) => (await webhooks.getWebhook({ webhookId })).webhook?.revision;

test("request settings come with the webhook's revision, which a change of them raises and equal settings do not", async () => {
  const webhookId = await api.register();
  const { revision } = await read(webhookId);
  expect(revision).toBe(await revisionOf(webhookId));
  const settings = header("X-One");
  await webhooks.setWebhookRequestSettings({ webhookId, revision, settings });
  const changed = await read(webhookId);
  expect(changed).toMatchObject({ revision: revision + 1n, settings: { headerNames: ["X-One"] } });
  await webhooks.setWebhookRequestSettings({ webhookId, revision: changed.revision, settings });
  expect((await read(webhookId)).revision).toBe(changed.revision);
  expect(await revisionOf(webhookId)).toBe(changed.revision);
});

test("of two changes of request settings with the same revision, one is made; the other is told the current one", async () => {
  const webhookId = await api.register();
  const { revision } = await read(webhookId);
  const names = ["X-One", "X-Two"] as const;
  const outcomes = await Promise.all(
    names.map((name) =>
      failure(webhooks.setWebhookRequestSettings({ webhookId, revision, settings: header(name) })),
    ),
  );
  const refused = outcomes.filter((outcome) => outcome !== undefined);
  expect(refused.map(({ code }) => code)).toEqual([Code.Aborted]);
  expect(refused[0]?.findDetails(ErrorInfoSchema)[0]).toMatchObject({
    reason: "REVISION_CHANGED",
    metadata: expect.objectContaining({ revision: String(revision + 1n) }),
  });
  const { settings } = await read(webhookId);
  expect(settings?.headerNames).toEqual([outcomes[0] === undefined ? "X-One" : "X-Two"]);
});

test.each(["traceparent", "Tracestate"])(
  "a custom header %s is refused, as DELIVERY_TRACEPARENT would send a second one",
  async (name) => {
    const webhookId = await api.register();
    const refused = await failure(webhooks.setWebhookRequestSettings({ webhookId, settings: header(name) }));
    expect(refused?.code).toBe(Code.InvalidArgument);
    expect(refused?.rawMessage).toContain(
      `settings.headers[0].name is ${name}, which HTTP or this service sets`,
    );
    expect((await read(webhookId)).settings?.headerNames).toEqual([]);
  },
);

test("request settings are not removed with a revision from before another change, and are without a revision", async () => {
  const webhookId = await api.register();
  await webhooks.setWebhookRequestSettings({ webhookId, settings: header("X-One") });
  const { revision } = await read(webhookId);
  await webhooks.updateWebhook({ webhookId, name: "Shop" });
  const refused = await failure(webhooks.setWebhookRequestSettings({ webhookId, revision }));
  expect([refused?.code, refused?.findDetails(ErrorInfoSchema)[0]?.reason]).toEqual([
    Code.Aborted,
    "REVISION_CHANGED",
  ]);
  expect((await read(webhookId)).settings?.headerNames).toEqual(["X-One"]);
  await webhooks.setWebhookRequestSettings({ webhookId });
  expect((await read(webhookId)).settings?.headerNames).toEqual([]);
});

test.each<[string, MessageInitShape<typeof RequestSettingsSchema>]>([
  ["a header", header("X-One")],
  ["a bearer token", { authentication: { case: "bearer", value: { token: "t" } } }],
])(
  "stored credentials do not go to another host: with %s, only the path of a URL can be changed",
  async (_, settings) => {
    const webhookId = await api.register();
    const { webhook } = await webhooks.getWebhook({ webhookId });
    const { origin, host } = new URL(webhook?.url ?? "");
    await webhooks.setWebhookRequestSettings({ webhookId, settings });
    const change = (url: string) => webhooks.updateWebhook({ webhookId, url });
    await change(`${origin}/another-${webhookId}`);
    for (const url of ["https://thief.example/", `https://${host}.thief.example/`, `https://${host}:8443/`]) {
      const refused = await failure(change(url));
      expect([refused?.code, refused?.rawMessage]).toEqual([
        Code.FailedPrecondition,
        expect.stringContaining("send request_settings with the headers and credentials for that host"),
      ]);
    }
    expect((await webhooks.getWebhook({ webhookId })).webhook?.url).toBe(`${origin}/another-${webhookId}`);
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
  const refused = await failure(webhooks.updateWebhook({ webhookId, url, requestSettings: unset }));
  expect([refused?.code, refused?.rawMessage]).toEqual([
    Code.InvalidArgument,
    expect.stringContaining("request_settings.headers[0].value is required"),
  ]);
  expect(await read(webhookId)).toEqual(before);
  const requestSettings = {
    ...header("X-One"),
    authentication: { case: "bearer" as const, value: { token: "t" } },
  };
  const { webhook } = await webhooks.updateWebhook({
    webhookId,
    url,
    requestSettings,
    revision: before.revision,
  });
  const after = await read(webhookId);
  expect(webhook).toMatchObject({ url, revision: after.revision });
  expect(after.settings).toMatchObject({ headerNames: ["X-One"], hasBearerToken: true });
  const [entry] = (await audit.listAuditEntries({ targetId: String(webhookId), pageSize: 1 })).entries;
  expect(entry?.changes.map(({ field }) => field).sort()).toEqual(["authentication", "url"]);
  // The host stays: values that are unset are kept.
  await webhooks.updateWebhook({ webhookId, url: `${url}path`, requestSettings: unset });
  expect((await read(webhookId)).settings).toMatchObject({ headerNames: ["X-One"], hasBearerToken: false });
  await webhooks.updateWebhook({ webhookId, requestSettings: {} });
  expect((await read(webhookId)).settings).toMatchObject({ headerNames: [] });
});

test("an update with request settings changes those of the endpoint's other webhooks too", async () => {
  const { endpoint } = await api.client(EndpointService).createEndpoint({
    processes: [1, 2],
    url: "https://endpoint-of-two.example/",
  });
  const [first, second] = (endpoint?.webhooks ?? []).map(({ id }) => id) as [bigint, bigint];
  await webhooks.updateWebhook({ webhookId: first, requestSettings: header("X-One") });
  expect((await read(second)).settings?.headerNames).toEqual(["X-One"]);
});

test("an RSA key of a client certificate that takes long to sign with is refused", async () => {
  const webhookId = await api.register();
  const { cert: certificate } = await (await createLocalAuthority()).issue(["shop"], { client: true });
  const { privateKey } = await promisify(generateKeyPair)("rsa", { modulusLength: 4_104 });
  const key = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  const settings = { tls: { clientCertificate: { certificate, key } } };
  const refused = await failure(webhooks.setWebhookRequestSettings({ webhookId, settings }));
  expect(refused?.code).toBe(Code.InvalidArgument);
  expect(refused?.rawMessage).toBe(
    "settings.tls.client_certificate.key has 4104 bits; at most 4096 are allowed: use a shorter RSA key, or an elliptic curve",
  );
});
