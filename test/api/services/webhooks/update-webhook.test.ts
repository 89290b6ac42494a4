import { Code, createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ErrorInfoSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { connect } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { reasonOf } from "../../../support/grpc-calls.ts";
import { expectRefused } from "../../../support/refusals.ts";
import { CONTRACT_FIELDS, useApi } from "../../../support/test-api.ts";

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
  const all = { webhookId, name: " Shop orders", rateLimit: 20, paused: true };
  const changed = (await webhooks.updateWebhook(all)).webhook;
  expect(changed).toMatchObject({ name: "Shop orders", rateLimit: 20, url, paused: expect.anything() });
  expect(await get(webhookId)).toEqual(changed);
  const none = { webhookId, name: "", rateLimit: 0, paused: false };
  const cleared = (await webhooks.updateWebhook(none)).webhook;
  expect([cleared?.name, cleared?.rateLimit, cleared?.paused]).toEqual([undefined, undefined, undefined]);
  expect((await webhooks.getWebhookSecret({ webhookId })).secret).toBe(secret);
  // As the list says, over Connect too.
  const { webhooks: listed } = await createClient(WebhookService, connect(api)).listWebhooks({});
  expect(listed.find(({ id }) => id === webhookId)).toEqual(cleared);
});

test("values that are as they were change nothing, and calls that change one field raise the revision too", async () => {
  const webhookId = await api.register();
  const before = await get(webhookId);
  const same = { webhookId, url: before?.url ?? "", name: "", rateLimit: 0, paused: false };
  expect((await webhooks.updateWebhook(same)).webhook).toEqual(before);
  expect((await webhooks.updateWebhook({ webhookId })).webhook).toEqual(before);
  expect((await webhooks.resumeWebhook({ webhookId })).webhook).toEqual(before);
  const { webhook: paused } = await webhooks.pauseWebhook({ webhookId });
  expect((await webhooks.pauseWebhook({ webhookId })).webhook).toEqual(paused);
  await webhooks.setWebhookRateLimit({ webhookId, rateLimit: 3 });
  expect((await get(webhookId))?.revision).toBe(3n);
});

test.each([
  [
    "fields",
    (call: { webhookId: bigint; revision: bigint }) => webhooks.updateWebhook({ ...call, name: "x" }),
  ],
  [
    "request settings",
    (call: { webhookId: bigint; revision: bigint }) =>
      webhooks.setWebhookRequestSettings({ ...call, settings: { headers: [{ name: "X-One", value: "1" }] } }),
  ],
])(
  "of two changes of %s with the revision that was read, one is made; the other is told the current one",
  async (_, change) => {
    const webhookId = await api.register();
    const call = { webhookId, revision: 1n };
    const outcomes = await Promise.all([failure(change(call)), failure(change(call))]);
    const refused = outcomes.filter((outcome) => outcome !== undefined);
    expect(refused.map((error) => [error.code, reasonOf(error)])).toEqual([
      [Code.Aborted, "REVISION_CHANGED"],
    ]);
    expect(refused[0]?.findDetails(ErrorInfoSchema)[0]?.metadata).toMatchObject({ revision: "2" });
    expect(await get(webhookId)).toMatchObject({ revision: 2n });
  },
);

test.each([
  ["rotating the secret", (webhookId: bigint) => webhooks.rotateWebhookSecret({ webhookId })],
  ["a new key pair", (webhookId: bigint) => webhooks.rotateWebhookKeyPair({ webhookId })],
  ["deleting the key pairs", (webhookId: bigint) => webhooks.deleteWebhookKeyPairs({ webhookId })],
])("%s raises the revision: an update with the revision from before it is refused", async (_what, change) => {
  const webhookId = await api.register();
  await webhooks.rotateWebhookKeyPair({ webhookId });
  const revision = (await get(webhookId))?.revision as bigint;
  await change(webhookId);
  expect((await get(webhookId))?.revision).toBe(revision + 1n);
  const stale = webhooks.updateWebhook({ webhookId, revision, name: "Shop" });
  await expectRefused(stale, Code.Aborted, "", "REVISION_CHANGED");
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

test.each([
  [{ url: "http://receiver.example/" }, "URL_NOT_ALLOWED", /only https/],
  [{ url: "https://127.0.0.1/" }, "URL_NOT_ALLOWED", /127\.0\.0\.1/],
  [{ url: "https://[::ffff:10.0.0.1]/" }, "URL_NOT_ALLOWED", /private|not allowed/],
  [{ url: "" }, "URL_NOT_ALLOWED", /absolute URL/],
  [{ url: "https://receiver.example/\n" }, "FIELDS_INVALID", /control characters/],
  [{ name: "a\u202Eb" }, "FIELDS_INVALID", /must not hold/],
])("an update to %j is refused with what is allowed", async (change, reason, message) => {
  const webhookId = await api.register();
  await expectRefused(
    webhooks.updateWebhook({ webhookId, ...change }),
    Code.InvalidArgument,
    message,
    reason,
  );
  expect((await get(webhookId))?.revision).toBe(1n);
});

test("§2.1: REST answers a webhook with six fields and no more, whatever was set over gRPC, and has no filter", async () => {
  const webhookId = await api.register();
  const settings = { name: "Shop", rateLimit: 7, filter: "true", circuitBreaker: { enabled: true } };
  await webhooks.updateWebhook({
    webhookId,
    url: "https://receiver.example/renamed",
    paused: true,
    ...settings,
  });
  const { envelope } = await api.rest("GET", "/api/webhook/list", { query: { health: "3" } });
  const found = envelope.Data.find(({ Id }: { Id: number }) => Id === Number(webhookId));
  expect(Object.keys(found)).toEqual(CONTRACT_FIELDS);
  expect(found.Url).toBe("https://receiver.example/renamed");
});
