import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { type Client, Code, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiKeyService, CreateApiKeyRequestSchema } from "../../../gen/webhook/v1/api_key_pb.ts";
import { DeliveryService } from "../../../gen/webhook/v1/delivery_pb.ts";
import { StatsService } from "../../../gen/webhook/v1/stats_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { grpc } from "../../support/clients.ts";
import { failure } from "../../support/failure.ts";
import { ONLY, startTestApi, type TestApi } from "../../support/test-api.ts";
import { buildWorld, STATES, type World, type WorldKey, type WorldWebhook } from "./isolated-world.ts";

const UNKNOWN_ID = "00000000-0000-4000-8000-000000000000";

let api: TestApi;
let world: World;
/** A key of app A for every event type, and one that may subscribe to OrderDispatched alone. */
let wide: WorldKey;
let narrow: WorldKey;
beforeAll(async () => {
  api = await startTestApi();
  world = await buildWorld(api);
  [wide, narrow] = world.callers as [WorldKey, WorldKey];
});
afterAll(() => api.stop());

const webhooksAs = (key: WorldKey) => createClient(WebhookService, grpc(api, key.secret));
const deliveriesAs = (key: WorldKey) => createClient(DeliveryService, grpc(api, key.secret));
const statsAs = (key: WorldKey) => createClient(StatsService, grpc(api, key.secret));
const keysAs = (key: WorldKey) => createClient(ApiKeyService, grpc(api, key.secret));

const ofA = (process?: number) =>
  world.webhooks.filter(
    (each) => each.appId === world.appA.id && (process === undefined || each.process === process),
  );
const ofB = (process = 1) =>
  world.webhooks.find((each) => each.appId === world.appB.id && each.process === process) as WorldWebhook;

describe("webhooks", () => {
  test("§4.1: the list holds every webhook for a key of an app, others' with the contract's six fields only", async () => {
    const { webhooks } = await webhooksAs(narrow).listWebhooks({});
    expect(webhooks).toHaveLength(world.webhooks.length);
    for (const own of ofA(1)) {
      expect(webhooks.find(({ id }) => id === own.id)).toMatchObject({
        apiKeyId: own.keyId,
        applicationName: world.appA.name,
      });
    }
    for (const other of [ofB(), ofA(2)[0] as WorldWebhook]) {
      const shown = webhooks.find(({ id }) => id === other.id);
      expect(shown).toMatchObject({
        url: other.url,
        webhookProcess: other.process,
        application: other.appId,
      });
      expect([shown?.apiKeyId, shown?.applicationName, shown?.paused]).toEqual(["", undefined, undefined]);
    }
    const rest = await api.rest("GET", "/api/webhook/list", { key: narrow.secret });
    expect(rest.envelope.Data).toHaveLength(world.webhooks.length);
  });

  test("of another app are NOT_FOUND for every call about one webhook, as one that does not exist is", async () => {
    const client = webhooksAs(wide);
    const calls: ((webhookId: bigint) => Promise<unknown>)[] = [
      (webhookId) => client.getWebhook({ webhookId }),
      (webhookId) => client.getWebhookSecret({ webhookId }),
      (webhookId) => client.rotateWebhookSecret({ webhookId }),
      (webhookId) => client.pauseWebhook({ webhookId }),
      (webhookId) => client.resumeWebhook({ webhookId }),
      (webhookId) => client.setWebhookRateLimit({ webhookId, rateLimit: 1 }),
      (webhookId) => client.updateWebhook({ webhookId, name: "Shop", revision: 1n }),
      (webhookId) => client.sendTestEvent({ webhookId }),
    ];
    const unknown = 4_711n;
    for (const call of calls) {
      const [refused, missing] = [await failure(call(ofB().id)), await failure(call(unknown))];
      expect(refused?.code).toBe(Code.NotFound);
      expect(refused?.rawMessage.replace(String(ofB().id), "")).toBe(
        missing?.rawMessage.replace(String(unknown), ""),
      );
    }
  });

  test("of its own app do what they always did for a key of the app, for the event types it may subscribe to", async () => {
    const [own] = ofA(1) as [WorldWebhook];
    const [otherType] = ofA(2) as [WorldWebhook];
    const client = webhooksAs(narrow);
    expect((await client.getWebhook({ webhookId: own.id })).webhook?.apiKeyId).toBe(own.keyId);
    expect((await client.getWebhookSecret({ webhookId: own.id })).secrets).toHaveLength(2);
    await client.pauseWebhook({ webhookId: own.id });
    await client.resumeWebhook({ webhookId: own.id });
    await client.setWebhookRateLimit({ webhookId: own.id, rateLimit: 5 });
    const { webhook } = await client.updateWebhook({ webhookId: own.id, name: "Shop", rateLimit: 6 });
    expect(webhook).toMatchObject({ name: "Shop", rateLimit: 6, url: own.url });
    const { deliveryId } = await client.sendTestEvent({ webhookId: own.id });
    expect((await deliveriesAs(narrow).getDelivery({ deliveryId })).delivery?.webhookId).toBe(own.id);
    expect((await failure(client.getWebhookSecret({ webhookId: otherType.id })))?.code).toBe(Code.NotFound);
    expect((await webhooksAs(wide).getWebhookSecret({ webhookId: otherType.id })).secrets).toHaveLength(2);
  });

  test("§4.3: a key of an app deletes any webhook by its id, and is shown its six fields", async () => {
    const [victim] = world.webhooks.filter(({ appId, process }) => appId === null && process === 2);
    const { webhook } = await webhooksAs(narrow).deleteWebhook({ webhookId: victim?.id as bigint });
    expect(webhook).toMatchObject({ id: victim?.id, url: victim?.url, apiKeyId: "" });
  });
});

describe("deliveries", () => {
  test("are listed, read and sent again for a key of an app only where its app's webhooks had them", async () => {
    const client = deliveriesAs(narrow);
    const { deliveries } = await client.listDeliveries({ pageSize: 1_000 });
    const own = new Set(ofA(1).map(({ id }) => id));
    expect(deliveries.length).toBeGreaterThanOrEqual(own.size * STATES.length);
    for (const { webhookId } of deliveries) expect(own).toContain(webhookId);
    for (const process of [1, 2]) {
      const other = ofB(process);
      expect((await client.listDeliveries({ webhookId: other.id })).deliveries).toEqual([]);
      expect((await client.listDeliveries({ eventId: other.eventIds[0] as string })).deliveries).toEqual([]);
      const [deliveryId] = other.deliveryIds as [string];
      expect((await client.listDeliveries({ deliveryId })).deliveries).toEqual([]);
      expect((await failure(client.getDelivery({ deliveryId })))?.code).toBe(Code.NotFound);
      expect((await failure(client.sendAgain({ deliveryId })))?.code).toBe(Code.NotFound);
      expect(await client.sendAgainMany({ webhookId: other.id })).toMatchObject({ sentAgain: 0, skipped: 0 });
    }
  });

  test("tell a key of an app nothing of dispatch runs, which are of the whole service", async () => {
    const [own] = ofA(1) as [WorldWebhook];
    const deliveryId = own.deliveryIds[STATES.indexOf("delivered")] as string;
    const seen = await deliveriesAs(narrow).getDelivery({ deliveryId });
    expect([seen.request?.body, seen.run]).toEqual([expect.stringContaining("payload-"), undefined]);
    const all = await createClient(DeliveryService, grpc(api)).getDelivery({ deliveryId });
    expect(all.run?.workflowId).toContain("workflow-");
  });
});

describe("statistics", () => {
  test("count for a key of an app the deliveries of its webhooks alone, and are shared with nobody who sees others", async () => {
    const count = async (key: WorldKey) => {
      const stats = statsAs(key);
      const { overview } = await stats.getOverview({});
      const { buckets } = await stats.getHistory({ buckets: 1 });
      const { webhooks } = await stats.listWebhookStats({});
      return { overview, bucket: buckets[0], ids: webhooks.map(({ webhookId }) => webhookId) };
    };
    const admin = await createClient(StatsService, grpc(api)).getOverview({});
    expect(admin.overview?.failed).toBe(BigInt(world.webhooks.length - 1) + 1n);
    const [narrowly, widely] = [await count(narrow), await count(wide)];
    const failedOf = (own: WorldWebhook[]) => BigInt(own.length);
    expect(narrowly.overview).toMatchObject({
      failed: failedOf(ofA(1)),
      retrying: failedOf(ofA(1)),
      failedLastDay: failedOf(ofA(1)),
      deliveredLastDay: failedOf(ofA(1)),
      attemptsLastDay: BigInt(ofA(1).length * STATES.length),
    });
    expect(widely.overview).toMatchObject({ failed: failedOf(ofA()), deliveredLastDay: failedOf(ofA()) });
    expect(narrowly.bucket).toMatchObject({ failed: failedOf(ofA(1)), delivered: failedOf(ofA(1)) });
    expect(widely.bucket).toMatchObject({ failed: failedOf(ofA()), delivered: failedOf(ofA()) });
    expect(narrowly.ids).toEqual(ofA(1).map(({ id }) => id));
    expect(widely.ids).toEqual(ofA().map(({ id }) => id));
  });

  test("of runs, and dispatching at once, are refused to keys of apps", async () => {
    const stats = statsAs(wide);
    for (const call of [() => stats.listDispatchRuns({}), () => stats.dispatchNow({})]) {
      const refused = await failure(call());
      expect(refused?.code).toBe(Code.PermissionDenied);
      expect(refused?.rawMessage).toContain("use a key without an app");
    }
  });
});

describe("API keys", () => {
  let keys: Client<typeof ApiKeyService>;
  beforeAll(() => {
    keys = keysAs(narrow);
  });

  test("of its own app are all that a key of an app lists, with its own app", async () => {
    const { apiKeys } = await keys.listApiKeys({});
    expect(apiKeys.length).toBeGreaterThan(3);
    for (const key of apiKeys) expect(key.installedApplicationId).toBe(world.appA.id);
    const { installedApps } = await keys.listInstalledApps({});
    expect(installedApps.map(({ id }) => id)).toEqual([world.appA.id]);
  });

  test("are created by a key of an app for its app only, with at most its own rights", async () => {
    const right: MessageInitShape<typeof CreateApiKeyRequestSchema> = {
      name: "k",
      permissions: ONLY.read,
      allowedProcesses: [1],
      installedApplicationId: world.appA.id,
    };
    expect((await keys.createApiKey(right)).apiKey).toMatchObject({ installedApplicationId: world.appA.id });
    const { secret } = await api.key({
      permissions: [...ONLY.read, ...ONLY.manage],
      installedAppId: world.appA.id,
    });
    const manager = createClient(ApiKeyService, grpc(api, secret));
    const withoutApp = create(CreateApiKeyRequestSchema, right);
    delete withoutApp.installedApplicationId;
    const refusals = [
      keys.createApiKey(withoutApp),
      keys.createApiKey({ ...right, installedApplicationId: world.appB.id }),
      keys.createApiKey({ ...right, installedApplicationId: UNKNOWN_ID }),
      keys.createApiKey({ ...right, allowedProcesses: [] }),
      keys.createApiKey({ ...right, allowedProcesses: [1, 2] }),
      manager.createApiKey({ ...right, permissions: ONLY.write }),
      keys.setApiKeyQuotas({ apiKeyId: wide.id }),
      keys.createInstalledApp({ name: "another" }),
      keys.deleteInstalledApp({ installedApplicationId: world.appB.id }),
    ];
    const codes = (await Promise.all(refusals.map((call) => failure(call)))).map((refused) => refused?.code);
    expect(codes).toEqual(refusals.map(() => Code.PermissionDenied));
  });

  test("with more rights than its own are neither rotated, revoked nor removed by a key of an app", async () => {
    const fate = { case: "deleteWebhooks", value: {} } as const;
    for (const call of [
      () => keys.rotateApiKey({ apiKeyId: wide.id }),
      () => keys.revokeApiKey({ apiKeyId: wide.id, webhooks: fate }),
      () => keys.deleteApiKey({ apiKeyId: wide.id }),
    ]) {
      expect((await failure(call()))?.code).toBe(Code.PermissionDenied);
    }
    expect((await keysAs(wide).listApiKeys({})).apiKeys.length).toBeGreaterThan(0);
  });

  test("of others are NOT_FOUND for a key of an app, as those that do not exist are", async () => {
    const other = world.keys.find(({ appId }) => appId === world.appB.id) as WorldKey;
    const fate = { case: "deleteWebhooks", value: {} } as const;
    const client = keysAs(wide);
    const calls: ((apiKeyId: string) => Promise<unknown>)[] = [
      (apiKeyId) => client.rotateApiKey({ apiKeyId }),
      (apiKeyId) => client.revokeApiKey({ apiKeyId, webhooks: fate }),
      (apiKeyId) => client.deleteApiKey({ apiKeyId }),
      (apiKeyId) =>
        client.revokeApiKey({ apiKeyId: narrow.id, webhooks: { case: "transferToKeyId", value: apiKeyId } }),
    ];
    for (const call of calls) {
      const [refused, missing] = [await failure(call(other.id)), await failure(call(UNKNOWN_ID))];
      expect(refused?.code).toBe(Code.NotFound);
      expect(refused?.rawMessage.replace(other.id, "")).toBe(missing?.rawMessage.replace(UNKNOWN_ID, ""));
    }
  });

  test("of an app take over webhooks of their app only, whoever revokes the key before", async () => {
    const admin = createClient(ApiKeyService, grpc(api));
    const [fromB, toA] = [
      await api.key({ installedAppId: world.appB.id }),
      await api.key({ installedAppId: world.appA.id }),
    ];
    const url = "https://receiver.example/moves";
    await createClient(WebhookService, grpc(api, fromB.secret)).createWebhook({ process: 1, url });
    const transfer = (to: string) =>
      admin.revokeApiKey({ apiKeyId: fromB.id, webhooks: { case: "transferToKeyId", value: to } });
    const refused = await failure(transfer(toA.id));
    expect([refused?.code, refused?.rawMessage]).toEqual([
      Code.FailedPrecondition,
      expect.stringContaining("choose a key of their app or a key without an app"),
    ]);
    expect(await transfer((await api.key()).id)).toMatchObject({ webhooksTransferred: 1 });
  });
});
