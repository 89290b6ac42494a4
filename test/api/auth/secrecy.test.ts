import { createClient } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, expect, test } from "vitest";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { connect } from "../../support/clients.ts";
import { failure } from "../../support/failure.ts";
import { startTestApi } from "../../support/test-api.ts";
import { callHttp } from "../../support/wire.ts";

const lines: string[] = [];
const api = await startTestApi({
  log: pino({ level: "trace" }, { write: (line: string) => void lines.push(line) }),
  limits: { wrongKeysPerMinute: 1, requestsPerMinute: 1_000 },
  tryRequest: async () => {
    throw new Error("no test request");
  },
});
afterAll(() => api.stop());

test("no secret reaches the log, whatever happens to keys and webhooks, right or wrong", async () => {
  const { keys } = api;
  const webhooks = createClient(WebhookService, connect(api));
  const secrets = [api.adminKey];

  const made = await keys.createApiKey({ name: "Shop", permissions: [1] });
  const rotated = await keys.rotateApiKey({ apiKeyId: made.apiKey?.id ?? "" });
  secrets.push(made.secret, rotated.secret);
  const { webhook } = await webhooks.createWebhook({ process: 1, url: "https://receiver.example/secrecy" });
  const webhookId = webhook?.id as bigint;
  secrets.push((await webhooks.getWebhookSecret({ webhookId })).secret);
  secrets.push((await webhooks.rotateWebhookSecret({ webhookId })).secret);
  for (let n = 0; n < 3; n += 1) {
    const answers = [
      await failure(api.as(made.secret).webhooks.listWebhooks({})),
      (await api.rest("GET", "/api/webhook/list", { key: made.secret })).text,
      (await api.rest("POST", "/api/webhook", { key: rotated.secret, json: { process: 1 } })).text,
    ];
    for (const secret of secrets) expect(JSON.stringify(answers)).not.toContain(secret);
  }
  // Our own fault, with all there is to it in the log.
  await api.context.db.raw("alter table api_keys rename column prefix to prefixed");
  expect((await api.rest("GET", "/api/webhook/list")).status).toBe(500);
  await api.context.db.raw("alter table api_keys rename column prefixed to prefix");

  expect(lines.some((line) => line.includes("internal error"))).toBe(true);
  expect(lines.length).toBeGreaterThan(10);
  const log = lines.join("");
  for (const secret of secrets) {
    expect(log).not.toContain(secret);
    expect(log).not.toContain(Buffer.from(secret).toString("hex"));
    expect(log).not.toContain(secret.replace(/^whsec_/, ""));
  }
});

const HUSH = "hush-0123456789";

test.each<[string, string]>([
  ["a token in place of an object", `{"bearer":"${HUSH}"}`],
  ["a list of tokens", `{"bearer":{"token":["${HUSH}"]}}`],
  ["a token as the name of a field", `{"bearer":{"${HUSH}":1}}`],
  ["a token with a line break", `{"bearer":{"token":"${HUSH}\\n"}}`],
  [
    "two kinds of credentials",
    `{"bearer":{"token":"${HUSH}"},"basic":{"username":"u","password":"${HUSH}"}}`,
  ],
  ["a password in an object", `{"basic":{"username":"u","password":{"value":"${HUSH}"}}}`],
  ["a colon in a user name", `{"basic":{"username":"u:","password":"${HUSH}"}}`],
  ["a token URL with a password", `{"oauth2":{"tokenUrl":"https://u:${HUSH}@a.example/","clientId":"a"}}`],
  ["a client secret without a URL", `{"oauth2":{"clientId":"a","clientSecret":"${HUSH}"}}`],
  ["a value with a line break", `{"headers":[{"name":"X-A","value":"${HUSH}\\n"}]}`],
  ["a value without a name", `{"headers":[{"value":"${HUSH}"}]}`],
  ["a header as an object", `{"headers":{"X-A":"${HUSH}"}}`],
  ["a key that is none", `{"tls":{"clientCertificate":{"certificate":"${HUSH}","key":"${HUSH}"}}}`],
  ["text that ends within a token", `{"bearer":{"token":"${HUSH}`],
  ["valid credentials", `{"basic":{"username":"u","password":"${HUSH}"}}`],
])("no error or log line repeats credentials, however they are sent: %s", async (_, settings) => {
  const { webhook } = await api.webhooks.createWebhook({ process: 1, url: "https://receiver.example/hush" });
  for (const method of ["SetWebhookRequestSettings", "TryWebhookRequest"]) {
    const body = `{"webhookId":"${webhook?.id}","settings":${settings}}`;
    const { status, text } = await callHttp(api, `WebhookService/${method}`, { body });
    // Only the test request of valid credentials is made, which throws.
    if (status === 500)
      expect([method, settings]).toEqual(["TryWebhookRequest", expect.stringContaining("basic")]);
    expect(text).not.toContain("hush-0");
  }
  expect(lines.join("")).not.toContain("hush-0");
});
