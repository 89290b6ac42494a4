import { generateKeyPair } from "node:crypto";
import { promisify } from "node:util";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createLocalAuthority } from "../../../../demo/certificates.ts";
import { ErrorInfoSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import type { RequestSettingsSchema } from "../../../../gen/webhook/v1/request_settings_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { grpc } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { startTestApi, type TestApi } from "../../../support/test-api.ts";

let api: TestApi;
let webhooks: Client<typeof WebhookService>;
beforeAll(async () => {
  api = await startTestApi();
  webhooks = createClient(WebhookService, grpc(api));
});
afterAll(() => api.stop());

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
        expect.stringContaining("remove them from its request settings, change the URL, and set them again"),
      ]);
    }
    expect((await webhooks.getWebhook({ webhookId })).webhook?.url).toBe(`${origin}/another-${webhookId}`);
    await webhooks.setWebhookRequestSettings({ webhookId });
    const moved = `https://shop-${webhookId}.example/`;
    expect((await change(moved)).webhook?.url).toBe(moved);
  },
);

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
