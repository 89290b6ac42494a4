import { Code, createClient } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ErrorInfoSchema } from "../../../../gen/google/rpc/error_details_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { connect } from "../../../support/clients.ts";
import { failure } from "../../../support/failure.ts";
import { ONLY, useApi } from "../../../support/test-api.ts";

const api = await useApi();
const webhooks = api.client(WebhookService);

const get = async (webhookId: bigint) => (await webhooks.getWebhook({ webhookId })).webhook;
const reasonOf = async (call: Promise<unknown>) => {
  const refused = await failure(call);
  return [refused?.code, refused?.findDetails(ErrorInfoSchema)[0]?.reason];
};

test("only the fields that are given change, and the id, the event type and the secret stay", async () => {
  const webhookId = await api.register();
  const before = await get(webhookId);
  const { secret } = await webhooks.getWebhookSecret({ webhookId });
  const url = "https://Moved.example:443/orders?shop=1";
  const { webhook } = await webhooks.updateWebhook({ webhookId, url });
  expect(webhook).toEqual({
    ...before,
    url,
    modified: webhook?.modified,
    revision: (before?.revision ?? 0n) + 1n,
  });
  const all = { webhookId, name: " Shop orders", rateLimit: 20, paused: true };
  const changed = (await webhooks.updateWebhook(all)).webhook;
  expect(changed).toMatchObject({ name: "Shop orders", rateLimit: 20, url });
  expect(changed?.paused).toBeDefined();
  expect(await get(webhookId)).toEqual(changed);
  const cleared = (await webhooks.updateWebhook({ webhookId, name: "", rateLimit: 0, paused: false }))
    .webhook;
  expect([cleared?.name, cleared?.rateLimit, cleared?.paused]).toEqual([undefined, undefined, undefined]);
  expect((await webhooks.getWebhookSecret({ webhookId })).secret).toBe(secret);
  // As the list says, over Connect too.
  const { webhooks: listed } = await createClient(WebhookService, connect(api)).listWebhooks({});
  expect(listed.find(({ id }) => id === webhookId)).toEqual(cleared);
});

test("values that are as they were change nothing, and calls with a field of their own raise the revision too", async () => {
  const webhookId = await api.register();
  const before = await get(webhookId);
  const same = { webhookId, url: before?.url ?? "", name: "", rateLimit: 0, paused: false };
  expect((await webhooks.updateWebhook(same)).webhook).toEqual(before);
  expect((await webhooks.updateWebhook({ webhookId })).webhook).toEqual(before);
  await webhooks.pauseWebhook({ webhookId });
  await webhooks.setWebhookRateLimit({ webhookId, rateLimit: 3 });
  expect((await get(webhookId))?.revision).toBe((before?.revision ?? 0n) + 2n);
});

test("with the revision that was read, only the first of two changes is made; the other is told the current one", async () => {
  const webhookId = await api.register();
  const revision = (await get(webhookId))?.revision as bigint;
  const changes = ["one", "two"].map((name) =>
    failure(webhooks.updateWebhook({ webhookId, revision, name })),
  );
  const outcomes = await Promise.all(changes);
  const refused = outcomes.filter((outcome) => outcome !== undefined);
  expect(refused.map(({ code }) => code)).toEqual([Code.Aborted]);
  const [info] = refused[0]?.findDetails(ErrorInfoSchema) ?? [];
  expect(info).toMatchObject({
    reason: "REVISION_CHANGED",
    metadata: expect.objectContaining({ revision: String(revision + 1n) }),
  });
  const name = outcomes[0] === undefined ? "one" : "two";
  expect(await get(webhookId)).toMatchObject({ name, revision: revision + 1n });
});

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
  expect(await reasonOf(webhooks.updateWebhook({ webhookId, revision, name: "Shop" }))).toEqual([
    Code.Aborted,
    "REVISION_CHANGED",
  ]);
});

test("an address that another webhook has for the same event type is refused, and one for another type is not", async () => {
  const [first, second] = [await api.register(), await api.register()];
  const url = (await get(first))?.url as string;
  // The same address as the service requests it.
  const spelled = url.replace("https://receiver.example/", "https://RECEIVER.example:443/");
  expect(await reasonOf(webhooks.updateWebhook({ webhookId: second, url: spelled }))).toEqual([
    Code.AlreadyExists,
    "WEBHOOK_EXISTS",
  ]);
  expect((await get(second))?.revision).toBe(1n);
  const other = (await webhooks.createWebhook({ process: 2, url: "https://receiver.example/documents" }))
    .webhook;
  expect((await webhooks.updateWebhook({ webhookId: other?.id as bigint, url })).webhook?.url).toBe(url);
  // What was left can be registered again, and is another webhook.
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

test("an address, name or limit that no webhook can have is refused with what is allowed", async () => {
  const webhookId = await api.register();
  const wrong: [Parameters<typeof webhooks.updateWebhook>[0], string, RegExp][] = [
    [{ url: "http://receiver.example/" }, "URL_NOT_ALLOWED", /only https/],
    [{ url: "https://127.0.0.1/" }, "URL_NOT_ALLOWED", /127\.0\.0\.1/],
    [{ url: "https://[::ffff:10.0.0.1]/" }, "URL_NOT_ALLOWED", /private|not allowed|10\.0\.0\.1/],
    [{ url: "" }, "URL_NOT_ALLOWED", /absolute URL/],
    [{ url: "https://receiver.example/\n" }, "FIELDS_INVALID", /control characters/],
    [{ name: "x".repeat(101) }, "FIELDS_INVALID", /at most 100 characters/],
    [{ name: "a\u202Eb" }, "FIELDS_INVALID", /must not hold/],
    [{ rateLimit: 10_001 }, "FIELDS_INVALID", /1 to 10000/],
    [{ rateLimit: -1 }, "FIELDS_INVALID", /1 to 10000/],
  ];
  for (const [change, reason, message] of wrong) {
    const call = webhooks.updateWebhook({ webhookId, ...change });
    expect(await reasonOf(call)).toEqual([Code.InvalidArgument, reason]);
    expect((await failure(call))?.rawMessage).toMatch(message);
  }
  expect(await reasonOf(webhooks.updateWebhook({ name: "x" }))).toEqual([
    Code.InvalidArgument,
    "FIELDS_INVALID",
  ]);
  expect(await reasonOf(webhooks.updateWebhook({ webhookId: 4_711n, name: "x" }))).toEqual([
    Code.NotFound,
    "WEBHOOK_NOT_FOUND",
  ]);
  expect((await get(webhookId))?.revision).toBe(1n);
});

test("changing takes Write_Administrative_Data, and REST still answers the contract's fields and no more", async () => {
  const webhookId = await api.register();
  const { secret } = await api.key({ permissions: [...ONLY.read, ...ONLY.publish, ...ONLY.manage] });
  const reader = api.client(WebhookService, secret);
  expect((await failure(reader.updateWebhook({ webhookId, name: "x" })))?.code).toBe(Code.PermissionDenied);
  await webhooks.updateWebhook({ webhookId, name: "Shop", url: "https://receiver.example/renamed" });
  const { envelope } = await api.rest("GET", "/api/webhook/list");
  const found = envelope.Data.find((webhook: { Id: number }) => webhook.Id === Number(webhookId));
  expect(Object.keys(found)).toEqual(["Id", "Created", "Modified", "WebhookProcess", "Url", "Application"]);
  expect(found.Url).toBe("https://receiver.example/renamed");
});
