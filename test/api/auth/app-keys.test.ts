import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { foldDeltas } from "../../../src/maintenance/fold.ts";
import { expectRefused } from "../../support/refusals.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { ONLY, useApi } from "../../support/test-api.ts";

const api = await useApi();
const [appA, appB] = [await api.app("A"), await api.app("B")];
/** A key of app A for every event type, and one that may subscribe to OrderDispatched alone. */
const wide = await api.key({ installedAppId: appA });
const narrow = await api.key({ installedAppId: appA, allowedProcesses: [1] });
const ofB = await api.key({ installedAppId: appB });
/** Webhooks of app A for two event types, and of others, each with a delivery in three states. */
const own = await api.register({ key: narrow.secret });
const otherType = await api.register({ key: wide.secret, process: 2 });
const foreign = await api.register({ key: ofB.secret });
const ofNone = await api.register();
await storeDeliveries(
  api.context.db,
  [own, otherType, foreign, ofNone].flatMap((webhookId) =>
    (["failed", "retrying", "delivered"] as const).map((state) => ({
      webhookId,
      state,
      tried: [{ status: state === "delivered" ? 200 : 500 }],
    })),
  ),
);
await foldDeltas(api.context.db);

const webhooks = api.as(narrow.secret).webhooks;
const keys = api.as(narrow.secret).keys;

test("§4.1: the list holds every webhook for a key of an app, others' with the contract's six fields only", async () => {
  const { webhooks: listed } = await webhooks.listWebhooks({});
  const hidden = { apiKeyId: "", revision: 0n };
  expect(listed).toMatchObject([
    { id: own, apiKeyId: narrow.id, applicationName: "A", revision: 1n },
    { id: otherType, application: appA, webhookProcess: 2, ...hidden },
    { id: foreign, application: appB, webhookProcess: 1, ...hidden },
    { id: ofNone, webhookProcess: 1, ...hidden },
  ]);
  expect(listed.slice(1).map(({ applicationName }) => applicationName)).toEqual(Array(3).fill(undefined));
  const rest = await api.rest("GET", "/api/webhook/list", { key: narrow.secret });
  expect(rest.envelope.Data).toHaveLength(listed.length);
});

test("a key of an app reads and changes its app's webhooks of the event types that it may subscribe to, and lists its keys", async () => {
  const { webhook } = await webhooks.updateWebhook({ webhookId: own, name: "Shop", rateLimit: 6 });
  expect(webhook).toMatchObject({ name: "Shop", rateLimit: 6 });
  await expectRefused(webhooks.getWebhookSecret({ webhookId: otherType }), Code.NotFound);
  const { secrets } = await api.as(wide.secret).webhooks.getWebhookSecret({ webhookId: otherType });
  expect(secrets).toHaveLength(1);
  expect((await keys.listApiKeys({})).apiKeys.map(({ id }) => id)).toEqual([wide.id, narrow.id]);
  expect((await keys.listInstalledApps({})).installedApps.map(({ id }) => id)).toEqual([appA]);
});

test("§4.3: a key of an app deletes any webhook by its id, and is shown its six fields", async () => {
  const webhookId = await api.register({ process: 2 });
  const { webhook } = await webhooks.deleteWebhook({ webhookId });
  expect(webhook).toMatchObject({ id: webhookId, url: expect.stringContaining("https://"), apiKeyId: "" });
});

test.each([
  ["for one event type", narrow, [own]],
  ["for every event type", wide, [own, otherType]],
])(
  "deliveries are listed and counted for a key of an app %s where its webhooks had them",
  async (_, key, ids) => {
    const { deliveries, stats } = api.as(key.secret);
    const listed = (await deliveries.listDeliveries({})).deliveries.map(({ webhookId }) => webhookId);
    expect(listed.sort((one, another) => Number(one - another))).toEqual(ids.flatMap((id) => [id, id, id]));
    const n = BigInt(ids.length);
    const overview = {
      failed: n,
      retrying: n,
      failedLastDay: n,
      deliveredLastDay: n,
      attemptsLastDay: 3n * n,
    };
    expect(await stats.getOverview({})).toMatchObject({ overview });
    expect(await api.stats.getOverview({})).toMatchObject({ overview: { failed: 4n } });
    expect((await stats.getHistory({ buckets: 1 })).buckets).toMatchObject([{ failed: n, delivered: n }]);
    expect((await stats.listWebhookStats({})).webhooks.map(({ webhookId }) => webhookId)).toEqual(ids);
  },
);

test.each<[string, Parameters<typeof keys.createApiKey>[0]]>([
  ["of another app", { installedApplicationId: appB }],
  ["of an app that does not exist", { installedApplicationId: "00000000-0000-4000-8000-000000000000" }],
  ["without an app", { installedApplicationId: undefined as never }],
  ["for every event type", { allowedProcesses: [] }],
  ["for another event type", { allowedProcesses: [1, 2] }],
  ["with another permission", { permissions: ONLY.write }],
])("a key of an app creates no key %s", async (_, more) => {
  const rights = { permissions: [...ONLY.read, ...ONLY.manage], allowedProcesses: [1 as const] };
  const { secret } = await api.key({ ...rights, installedAppId: appA });
  const manager = api.as(secret).keys;
  const right = { name: "k", ...rights, installedApplicationId: appA };
  expect((await manager.createApiKey(right)).apiKey).toMatchObject({ installedApplicationId: appA });
  await expectRefused(manager.createApiKey({ ...right, ...more }), Code.PermissionDenied);
});

test("a key with more rights is not rotated, revoked or removed by a key of its app", async () => {
  const apiKeyId = wide.id;
  const webhooksOf = { case: "deleteWebhooks" as const, value: {} };
  await expectRefused(keys.rotateApiKey({ apiKeyId }), Code.PermissionDenied);
  await expectRefused(keys.revokeApiKey({ apiKeyId, webhooks: webhooksOf }), Code.PermissionDenied);
  await expectRefused(keys.deleteApiKey({ apiKeyId }), Code.PermissionDenied);
  await api.as(wide.secret).webhooks.listWebhooks({});
});

test("keys of an app take over webhooks of their app only, whoever revokes the key before", async () => {
  const from = await api.key({ installedAppId: appB });
  await api.register({ key: from.secret });
  const transfer = (value: string) =>
    api.keys.revokeApiKey({ apiKeyId: from.id, webhooks: { case: "transferToKeyId", value } });
  const message = "choose a key of their app or a key without an app";
  await expectRefused(transfer(wide.id), Code.FailedPrecondition, message);
  expect(await transfer((await api.key()).id)).toMatchObject({ webhooksTransferred: 1 });
});
