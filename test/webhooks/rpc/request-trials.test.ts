import { Code } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, expect, test } from "vitest";
import { readConfig } from "../../../src/config/config.ts";
import type { RequestTrial } from "../../../src/contract/target-rules.ts";
import { createGuards } from "../../../src/delivery/request/guards.ts";
import { createRequestTrial } from "../../../src/delivery/request/trial.ts";
import { createInstalledApp } from "../../../src/keys/installed-apps.ts";
import { expectRefused } from "../../support/refusals.ts";
import { startTestApi } from "../../support/test-api.ts";

const ACCEPTED = {
  accepted: true,
  status: 200,
  error: null,
  responseStart: null,
  durationMs: 6,
  cause: null,
  timing: [1, 1, 1, 2, 1],
  addresses: ["203.0.113.7"],
  certificates: [
    {
      subject: "CN=shop.example",
      issuer: "CN=Authority",
      notBefore: new Date(0),
      notAfter: new Date(86_400_000),
      names: ["shop.example"],
    },
  ],
};

/** What sends the next test requests. */
let send: RequestTrial = async () => ACCEPTED;
const api = await startTestApi({ tryRequest: (request) => send(request) });
afterAll(() => api.stop());
const { webhooks } = api;

test("of one key, two test requests are in flight: endpoints that hang delay no other key's", async () => {
  const { secret } = await api.key();
  const [webhookId, of] = [await api.register(), await api.register({ key: secret })];
  const answers = Promise.withResolvers<void>();
  let inFlight = 0;
  send = async (request) => {
    if (request.webhookId !== webhookId) return ACCEPTED;
    inFlight += 1;
    await answers.promise;
    return ACCEPTED;
  };
  const tried = Array.from({ length: 8 }, () => webhooks.tryWebhookRequest({ webhookId }));
  await expect.poll(() => inFlight).toBe(2);
  const other = api.as(secret).webhooks;
  for (let n = 0; n < 3; n += 1)
    expect(await other.tryWebhookRequest({ webhookId: of })).toMatchObject({ accepted: true });
  expect(inFlight).toBe(2);
  answers.resolve();
  await Promise.all(tried);
});

test("the answer has timing, addresses and certificates; customers and apps are told no addresses", async () => {
  send = async () => ACCEPTED;
  const found = await webhooks.tryWebhookRequest({ webhookId: await api.register() });
  expect(found).toMatchObject({
    timing: { dnsMs: 1, connectMs: 1, tlsMs: 1, firstByteMs: 2, bodyMs: 1 },
    addresses: ["203.0.113.7"],
    certificates: [{ subject: "CN=shop.example", names: ["shop.example"], notAfter: { seconds: 86_400n } }],
  });
  const { id: installedAppId } = await createInstalledApp(api.context.db, "App");
  const { secret } = await api.key({ installedAppId });
  const ofApp = api.as(secret).webhooks;
  const { webhook } = await ofApp.createWebhook({ process: 1, url: "https://receiver.example/of-app" });
  const { addresses, certificates } = await ofApp.tryWebhookRequest({ webhookId: webhook?.id ?? 0n });
  expect([addresses, certificates.length]).toEqual([[], 1]);
});

test("a test request with stored credentials is refused if the webhook was moved since they were read", async () => {
  const { db, secrets } = api.context;
  const log = pino({ level: "silent" });
  const trial = createRequestTrial({
    db,
    secrets,
    log,
    guards: createGuards(readConfig({}).delivery),
    delivery: { proxy: undefined, proxyDns: "local", timeoutMs: 1 },
  });
  const webhookId = await api.register();
  const settings = { authentication: { case: "bearer" as const, value: { token: "secret" } } };
  await webhooks.setWebhookRequestSettings({ webhookId, settings });
  send = async (request) => {
    await webhooks.updateWebhook({ webhookId, url: "https://other.example/", requestSettings: {} });
    return trial(request);
  };
  const kept = { authentication: { case: "bearer" as const, value: {} } };
  const call = webhooks.tryWebhookRequest({ webhookId, settings: kept });
  await expectRefused(call, Code.Aborted, "was changed");
});
