import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ErrorInfoSchema } from "../../../gen/google/rpc/error_details_pb.ts";
import {
  SignatureForm,
  type UpdateWebhookRequestSchema,
  type Webhook,
  WebhookService,
} from "../../../gen/webhook/v1/webhook_pb.ts";
import { heedWishes } from "../../../src/queue/holds.ts";
import { connect } from "../../support/clients.ts";
import { expectWithin, timed } from "../../support/database-time.ts";
import { DESCRIBED_TIMEOUT_MS } from "../../support/described-answers.ts";
import { failure } from "../../support/failure.ts";
import { expectRefused } from "../../support/refusals.ts";
import { CONTRACT_FIELDS, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { webhooks } = api;

const get = async (webhookId: bigint) => (await webhooks.getWebhook({ webhookId })).webhook;

test("only the fields that are given change, and the id, the event type and the secret stay", async () => {
  const webhookId = await api.register();
  const before = await get(webhookId);
  const { secret } = await webhooks.getWebhookSecret({ webhookId });
  const url = "https://Moved.example:443/orders?shop=1";
  const { webhook } = await webhooks.updateWebhook({ webhookId, url });
  expect(webhook).toEqual({ ...before, url, modified: webhook?.modified, revision: 2n });
  const numbers = {
    rateLimit: 20,
    ratePeriodSeconds: 60,
    timeoutMs: DESCRIBED_TIMEOUT_MS,
    firstRetrySeconds: 1,
    secondRetrySeconds: 600,
    thirdRetrySeconds: 86_400,
    signatureForm: SignatureForm.HEX,
    signatureHeader: "X-Signature",
    signaturePrefix: "sha256=",
  };
  const all = { webhookId, name: " Shop orders", ...numbers, paused: true };
  const changed = (await webhooks.updateWebhook(all)).webhook;
  expect(changed).toMatchObject({ name: "Shop orders", ...numbers, url, paused: expect.anything() });
  expect(await get(webhookId)).toEqual(changed);
  const none = Object.entries(numbers).map(([name, value]) => [name, typeof value === "number" ? 0 : ""]);
  const cleared = (
    await webhooks.updateWebhook({ webhookId, name: "", ...Object.fromEntries(none), paused: false })
  ).webhook as Webhook;
  const left = ["name", "paused", ...Object.keys(numbers)].filter((name) => cleared[name as keyof Webhook]);
  expect(left).toEqual([]);
  expect((await webhooks.getWebhookSecret({ webhookId })).secret).toBe(secret);
  // As the list says, over Connect too.
  const { webhooks: listed } = await createClient(WebhookService, connect(api)).listWebhooks({});
  expect(listed.find(({ id }) => id === webhookId)).toEqual(cleared);
});

test("values that are as they were change nothing, and calls that change one field raise the revision too", async () => {
  const webhookId = await api.register();
  const before = await get(webhookId);
  const same = { webhookId, url: before?.url ?? "", name: "", rateLimit: 0, paused: false };
  for (const call of [webhooks.updateWebhook(same), webhooks.resumeWebhook({ webhookId })])
    expect((await call).webhook).toEqual(before);
  const [{ webhook: paused }, span] = await timed(api.context.db, () => webhooks.pauseWebhook({ webhookId }));
  expectWithin(span, paused?.paused);
  expect((await webhooks.pauseWebhook({ webhookId })).webhook).toEqual(paused);
  expect((await webhooks.setWebhookRateLimit({ webhookId, rateLimit: 3 })).webhook?.revision).toBe(3n);
});

test("a webhook tells until when its endpoint wants no requests, and how many it takes, until it moves", async () => {
  const webhookId = await api.register();
  const before = await get(webhookId);
  const asked = { holdMs: 3_600_000, isRefusal: true, statedRate: null, acceptedRate: 5 };
  await heedWishes(api.context.db, [{ ...asked, webhookId, targetUrl: before?.url ?? "" }]);
  expect(await get(webhookId)).toEqual({ ...before, heldUntil: expect.anything(), takesPerSecond: 5 });
  await api.context.db.raw(
    "update webhooks set held_until = now() - interval '1 hour', paced_from = held_until",
  );
  const paced = await get(webhookId);
  expect([paced?.heldUntil, paced?.takesPerSecond]).toEqual([undefined, 5]);
  const { webhook } = await webhooks.updateWebhook({ webhookId, url: "https://elsewhere.example/" });
  expect(webhook?.takesPerSecond).toBeUndefined();
});

type Call = { webhookId: bigint; revision: bigint };
const settings = { headers: [{ name: "X-One", value: "1" }] };

test.each<[string, (call: Call) => Promise<unknown>]>([
  ["fields", (call) => webhooks.updateWebhook({ ...call, name: "x" })],
  ["request settings", (call) => webhooks.setWebhookRequestSettings({ ...call, settings })],
])(
  "of two changes of %s with one revision, one is made; the other is told the current one",
  async (_, change) => {
    const webhookId = await api.register();
    const call = { webhookId, revision: 1n };
    const outcomes = await Promise.all([failure(change(call)), failure(change(call))]);
    const [refused, ...more] = outcomes.flatMap((error) => error ?? []);
    expect([refused?.code, more]).toEqual([Code.Aborted, []]);
    const details = { reason: "REVISION_CHANGED", metadata: { revision: "2" } };
    expect(refused?.findDetails(ErrorInfoSchema)).toMatchObject([details]);
    expect(await get(webhookId)).toMatchObject({ revision: 2n });
  },
);

test("each rotation of secrets and key pairs raises the revision: an update with an earlier one is refused", async () => {
  const webhookId = await api.register();
  let revision = 1n;
  for (const change of [
    webhooks.rotateWebhookSecret,
    webhooks.rotateWebhookKeyPair,
    webhooks.deleteWebhookKeyPairs,
  ]) {
    await change({ webhookId });
    const stale = webhooks.updateWebhook({ webhookId, revision, name: "Shop" });
    await expectRefused(stale, Code.Aborted, "", "REVISION_CHANGED");
    revision += 1n;
    expect(await get(webhookId)).toMatchObject({ revision });
  }
});

test("an address that another webhook has for the same event type is refused, and one for another type is not", async () => {
  const [first, second] = [await api.register(), await api.register()];
  const other = await api.register({ process: 2 });
  const url = (await get(first))?.url as string;
  // The same address as the service requests it.
  const spelled = url.replace("https://receiver.example/", "https://RECEIVER.example:443/");
  const taken = webhooks.updateWebhook({ webhookId: second, url: spelled });
  await expectRefused(taken, Code.AlreadyExists, "", "WEBHOOK_EXISTS");
  expect((await get(second))?.revision).toBe(1n);
  expect((await webhooks.updateWebhook({ webhookId: other, url })).webhook?.url).toBe(url);
  // An address that was left can be registered again.
  await webhooks.updateWebhook({ webhookId: first, url: `${url}/moved` });
  expect((await webhooks.createWebhook({ process: 1, url })).created).toBe(true);
});

test("of registrations and changes that take one address at the same time, one goes through", async () => {
  const url = "https://receiver.example/wanted";
  const movers = await Promise.all(Array.from({ length: 5 }, () => api.register()));
  await Promise.all([
    ...movers.map((webhookId) => failure(webhooks.updateWebhook({ webhookId, url }))),
    ...movers.map(() => webhooks.createWebhook({ process: 1, url })),
  ]);
  const { webhooks: listed } = await webhooks.listWebhooks({});
  expect(listed.filter((webhook) => webhook.url === url && webhook.webhookProcess === 1)).toHaveLength(1);
});

test.each<[Partial<MessageInitShape<typeof UpdateWebhookRequestSchema>>, string, RegExp]>([
  [{ url: "http://receiver.example/" }, "URL_NOT_ALLOWED", /only https/],
  [{ url: "https://127.0.0.1/" }, "URL_NOT_ALLOWED", /127\.0\.0\.1/],
  [{ url: "" }, "URL_NOT_ALLOWED", /absolute URL/],
  [{ url: "https://receiver.example/\n" }, "FIELDS_INVALID", /control characters/],
  [{ name: "a\u202Eb" }, "FIELDS_INVALID", /must not hold/],
  [
    { rateLimit: 10_001 },
    "FIELDS_INVALID",
    /rate_limit must be 1 to 10000 deliveries per period, or 0 for none/,
  ],
  [
    { ratePeriodSeconds: -1 },
    "FIELDS_INVALID",
    /rate_period_seconds must be 1 to 86400 seconds, or 0 for none/,
  ],
  [
    { firstRetrySeconds: 86_401 },
    "FIELDS_INVALID",
    /first_retry_seconds must be 1 to 86400 seconds, or 0 for none/,
  ],
  [
    { thirdRetrySeconds: -1 },
    "FIELDS_INVALID",
    /third_retry_seconds must be 1 to 86400 seconds, or 0 for none/,
  ],
  [
    { signatureForm: 9 as SignatureForm },
    "FIELDS_INVALID",
    /signature_form 9 is not allowed; send any of: 1 \(SVIX\)/,
  ],
  [
    { signatureHeader: "Webhook-Signature" },
    "FIELDS_INVALID",
    /signature_header is Webhook-Signature, which HTTP or/,
  ],
  [
    { signatureHeader: "X-Service-UserId" },
    "FIELDS_INVALID",
    /signature_header is X-Service-UserId, which HTTP or/,
  ],
  [{ signatureHeader: "a b" }, "FIELDS_INVALID", /signature_header must be a header name/],
  [
    { signaturePrefix: "a\nb" },
    "FIELDS_INVALID",
    /signature_prefix must have 1 to 50 visible ASCII characters/,
  ],
  [{ signaturePrefix: "x".repeat(51) }, "FIELDS_INVALID", /signature_prefix must have 1 to 50/],
  [{ timeoutMs: 999 }, "FIELDS_INVALID", /timeout_ms must be 1000 to 7500 milliseconds, or 0 for none/],
  [{ timeoutMs: 7_501 }, "FIELDS_INVALID", /timeout_ms must be 1000 to 7500 milliseconds, or 0 for none/],
])("an update to %j is refused with what is allowed", async (change, reason, message) => {
  const webhookId = await api.register();
  const call = webhooks.updateWebhook({ webhookId, ...change });
  await expectRefused(call, Code.InvalidArgument, message, reason);
  expect((await get(webhookId))?.revision).toBe(1n);
});

test.each([
  [{ signatureForm: SignatureForm.SVIX }, { headers: [{ name: "Svix-Id", value: "1" }] }],
  [{ signatureForm: SignatureForm.STRIPE }, { headers: [{ name: "stripe-signature", value: "1" }] }],
  [
    { signatureForm: SignatureForm.HEX, signatureHeader: "X-Signature" },
    { headers: [{ name: "x-signature", value: "1" }] },
  ],
  [
    { signatureForm: SignatureForm.HEX, signatureHeader: "Authorization" },
    { authentication: { case: "bearer" as const, value: { token: "abc" } } },
  ],
])(
  "of a second signature %j and settings of requests with the same header, the later one is refused",
  async (second, requestSettings) => {
    const twice = (call: Promise<unknown>) =>
      expectRefused(call, Code.InvalidArgument, /must not have \S+ twice/, "FIELDS_INVALID");
    const [settingsFirst, signatureFirst] = [await api.register(), await api.register()];
    await webhooks.setWebhookRequestSettings({ webhookId: settingsFirst, settings: requestSettings });
    await twice(webhooks.updateWebhook({ webhookId: settingsFirst, ...second }));
    await webhooks.updateWebhook({ webhookId: signatureFirst, ...second });
    await twice(webhooks.setWebhookRequestSettings({ webhookId: signatureFirst, settings: requestSettings }));
    await twice(webhooks.updateWebhook({ webhookId: signatureFirst, requestSettings }));
    // Other changes, and the header of another form, are allowed.
    await webhooks.updateWebhook({ webhookId: settingsFirst, name: "Shop" });
    await webhooks.updateWebhook({ webhookId: signatureFirst, signatureForm: 0, requestSettings });
  },
);

test("§2.1: REST answers a webhook with six fields and no more, whatever was set over gRPC, and has no filter", async () => {
  const webhookId = await api.register();
  const url = "https://receiver.example/renamed";
  const more = { name: "Shop", rateLimit: 7, filter: "true", circuitBreaker: { enabled: true } };
  await webhooks.updateWebhook({ webhookId, url, paused: true, ...more });
  const { envelope } = await api.rest("GET", "/api/webhook/list", { query: { health: "3" } });
  const found = envelope.Data.find(({ Id }: { Id: number }) => Id === Number(webhookId));
  expect(Object.keys(found)).toEqual(CONTRACT_FIELDS);
  expect(found.Url).toBe(url);
});
