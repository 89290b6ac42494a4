import { create } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ApiKeyService, CreateApiKeyRequestSchema } from "../../../gen/webhook/v1/api_key_pb.ts";
import { DeliveryService } from "../../../gen/webhook/v1/delivery_pb.ts";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { foldDeltas } from "../../../src/db/deliveries/rollups.ts";
import { failure } from "../../support/failure.ts";
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

const webhooks = api.client(WebhookService, narrow.secret);
const keys = api.client(ApiKeyService, narrow.secret);
const DELETE_WEBHOOKS = { case: "deleteWebhooks", value: {} } as const;

test("§4.1: the list holds every webhook for a key of an app, others' with the contract's six fields only", async () => {
  const { webhooks: listed } = await webhooks.listWebhooks({});
  expect(listed.map(({ id }) => id)).toEqual([own, otherType, foreign, ofNone]);
  expect(listed[0]).toMatchObject({ apiKeyId: narrow.id, applicationName: "A", revision: 1n });
  for (const [n, application, process] of [
    [1, appA, 2],
    [2, appB, 1],
    [3, undefined, 1],
  ] as const) {
    expect([listed[n]?.application, listed[n]?.webhookProcess]).toEqual([application, process]);
    expect([listed[n]?.apiKeyId, listed[n]?.applicationName, listed[n]?.revision]).toEqual([
      "",
      undefined,
      0n,
    ]);
  }
  const rest = await api.rest("GET", "/api/webhook/list", { key: narrow.secret });
  expect(rest.envelope.Data).toHaveLength(listed.length);
});

test("a key of an app reads and changes its app's webhooks of the event types that it may subscribe to", async () => {
  expect((await webhooks.getWebhook({ webhookId: own })).webhook?.apiKeyId).toBe(narrow.id);
  expect((await webhooks.getWebhookSecret({ webhookId: own })).secrets).toHaveLength(1);
  await webhooks.pauseWebhook({ webhookId: own });
  await webhooks.resumeWebhook({ webhookId: own });
  const { webhook } = await webhooks.updateWebhook({ webhookId: own, name: "Shop", rateLimit: 6 });
  expect(webhook).toMatchObject({ name: "Shop", rateLimit: 6 });
  await expectRefused(webhooks.getWebhookSecret({ webhookId: otherType }), Code.NotFound);
  const { secrets } = await api
    .client(WebhookService, wide.secret)
    .getWebhookSecret({ webhookId: otherType });
  expect(secrets).toHaveLength(1);
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
    const { deliveries } = await api.client(DeliveryService, key.secret).listDeliveries({});
    expect([...new Set(deliveries.map(({ webhookId }) => webhookId))].sort()).toEqual(ids);
    expect(deliveries).toHaveLength(3 * ids.length);
    const stats = api.client(StatsService, key.secret);
    const count = BigInt(ids.length);
    expect((await stats.getOverview({})).overview).toMatchObject({
      failed: count,
      retrying: count,
      failedLastDay: count,
      deliveredLastDay: count,
      attemptsLastDay: 3n * count,
    });
    expect((await api.client(StatsService).getOverview({})).overview).toMatchObject({ failed: 4n });
    expect((await stats.getHistory({ buckets: 1 })).buckets).toMatchObject([
      { failed: count, delivered: count },
    ]);
    expect((await stats.listWebhookStats({})).webhooks.map(({ webhookId }) => webhookId)).toEqual(ids);
  },
);

test("API keys and the app of its own are all that a key of an app lists", async () => {
  const { apiKeys } = await keys.listApiKeys({});
  expect(apiKeys.map(({ id }) => id)).toEqual([wide.id, narrow.id]);
  const { installedApps } = await keys.listInstalledApps({});
  expect(installedApps.map(({ id }) => id)).toEqual([appA]);
});

test("a key of an app creates keys for its app only, with at most its own rights", async () => {
  const right = create(CreateApiKeyRequestSchema, {
    name: "k",
    permissions: ONLY.read,
    allowedProcesses: [1],
    installedApplicationId: appA,
  });
  expect((await keys.createApiKey(right)).apiKey).toMatchObject({ installedApplicationId: appA });
  const withoutApp = create(CreateApiKeyRequestSchema, right);
  delete withoutApp.installedApplicationId;
  for (const more of [
    { ...right, installedApplicationId: appB },
    { ...right, installedApplicationId: "00000000-0000-4000-8000-000000000000" },
    { ...right, allowedProcesses: [] },
    { ...right, allowedProcesses: [1, 2] as WebhookProcess[] },
    withoutApp,
  ]) {
    await expectRefused(keys.createApiKey(more), Code.PermissionDenied);
  }
  const { secret } = await api.key({ permissions: [...ONLY.read, ...ONLY.manage], installedAppId: appA });
  const manager = api.client(ApiKeyService, secret);
  await expectRefused(manager.createApiKey({ ...right, permissions: ONLY.write }), Code.PermissionDenied);
});

test.each([
  ["rotated", () => keys.rotateApiKey({ apiKeyId: wide.id })],
  ["revoked", () => keys.revokeApiKey({ apiKeyId: wide.id, webhooks: DELETE_WEBHOOKS })],
  ["removed", () => keys.deleteApiKey({ apiKeyId: wide.id })],
])("a key with more rights is not %s by a key of its app", async (_, call) => {
  await expectRefused(call(), Code.PermissionDenied);
  expect(await failure(api.client(WebhookService, wide.secret).listWebhooks({}))).toBeUndefined();
});

test("keys of an app take over webhooks of their app only, whoever revokes the key before", async () => {
  const from = await api.key({ installedAppId: appB });
  await api.register({ key: from.secret });
  const transfer = (to: string) =>
    api.client(ApiKeyService).revokeApiKey({
      apiKeyId: from.id,
      webhooks: { case: "transferToKeyId", value: to },
    });
  await expectRefused(
    transfer(wide.id),
    Code.FailedPrecondition,
    "choose a key of their app or a key without an app",
  );
  expect(await transfer((await api.key()).id)).toMatchObject({ webhooksTransferred: 1 });
});
