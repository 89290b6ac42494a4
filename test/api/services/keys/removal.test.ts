import { Code } from "@connectrpc/connect";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { DeliveryService } from "../../../../gen/webhook/v1/delivery_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { startSession } from "../../../../src/db/keys/sessions.ts";
import { failure } from "../../../support/failure.ts";
import { startTestApi, type TestApi, useApi } from "../../../support/test-api.ts";

const UNKNOWN_ID = "00000000-0000-4000-8000-000000000000";
const DELETE_WEBHOOKS = { case: "deleteWebhooks", value: {} } as const;

const api = await useApi();
const keys = api.client(ApiKeyService);

const keyIds = async () => (await keys.listApiKeys({})).apiKeys.map(({ id }) => id);

describe("removing a revoked key", () => {
  test("forgets it with its sessions and old secrets; its deleted webhooks and their deliveries stay in the log", async () => {
    const { db } = api.context;
    const { id, secret } = await api.key();
    await startSession(db, id, secret);
    const url = "https://receiver.example/removed";
    const client = api.client(WebhookService, secret);
    const { webhook } = await client.createWebhook({ process: 1, url });
    const { deliveryId } = await client.sendTestEvent({ webhookId: webhook?.id as bigint });
    await keys.rotateApiKey({ apiKeyId: id, gracePeriod: { seconds: 60n } });
    await keys.revokeApiKey({ apiKeyId: id, webhooks: DELETE_WEBHOOKS });
    expect((await keys.deleteApiKey({ apiKeyId: id.toUpperCase() })).apiKey).toMatchObject({ id });
    expect(await keyIds()).not.toContain(id);
    for (const table of ["sessions", "api_key_old_secrets"]) {
      expect(await db(table).where("api_key_id", id)).toEqual([]);
    }
    const { delivery, request } = await api.client(DeliveryService).getDelivery({ deliveryId });
    expect([delivery?.url, request?.body]).toEqual([url, expect.stringContaining("OrderId")]);
    // The address is free again, for whoever registers it next.
    await api.client(WebhookService).createWebhook({ process: 1, url });
  });

  test("is refused while it is not revoked, and for keys that do not exist", async () => {
    const { id } = await api.key();
    const refused = await failure(keys.deleteApiKey({ apiKeyId: id }));
    expect([refused?.code, refused?.rawMessage]).toEqual([
      Code.FailedPrecondition,
      expect.stringContaining("call RevokeApiKey first"),
    ]);
    expect(await keyIds()).toContain(id);
    expect((await failure(keys.deleteApiKey({ apiKeyId: UNKNOWN_ID })))?.code).toBe(Code.NotFound);
    expect((await failure(keys.deleteApiKey({ apiKeyId: "x" })))?.code).toBe(Code.InvalidArgument);
  });
});

describe("removing an installed app", () => {
  test("waits until its keys are removed and its webhooks deleted; its deliveries stay in the log as they were sent", async () => {
    const { installedApp } = await keys.createInstalledApp({ name: "Shop" });
    const installedApplicationId = installedApp?.id as string;
    const remove = () => keys.deleteInstalledApp({ installedApplicationId });
    const { id, secret } = await api.key({ installedAppId: installedApplicationId });
    const client = api.client(WebhookService, secret);
    const { webhook } = await client.createWebhook({ process: 1, url: "https://receiver.example/app" });
    const { deliveryId } = await client.sendTestEvent({ webhookId: webhook?.id as bigint });
    const problems: (string | undefined)[] = [];
    problems.push((await failure(remove()))?.rawMessage);
    const heir = await api.key();
    await keys.revokeApiKey({ apiKeyId: id, webhooks: { case: "transferToKeyId", value: heir.id } });
    problems.push((await failure(remove()))?.rawMessage);
    await keys.deleteApiKey({ apiKeyId: id });
    problems.push((await failure(remove()))?.rawMessage);
    expect(problems).toEqual([
      expect.stringContaining("has 1 API keys, including revoked ones, and 1 webhooks"),
      expect.stringContaining("has 1 API keys, including revoked ones, and 1 webhooks"),
      expect.stringContaining("has 0 API keys, including revoked ones, and 1 webhooks"),
    ]);
    await api.client(WebhookService).deleteWebhook({ webhookId: webhook?.id as bigint });
    expect((await remove()).installedApp).toMatchObject({ name: "Shop" });
    expect((await failure(remove()))?.code).toBe(Code.NotFound);
    expect((await keys.listInstalledApps({})).installedApps).toEqual([]);
    const { request } = await api.client(DeliveryService).getDelivery({ deliveryId });
    expect(request?.headers.map(({ name }) => name)).toContain("X-Service-UserId");
  });

  test("and creating a key of it at the same time leave no key without its app", async () => {
    for (let round = 0; round < 10; round++) {
      const { installedApp } = await keys.createInstalledApp({ name: "Race" });
      const installedApplicationId = installedApp?.id as string;
      const [made, removed] = await Promise.all([
        failure(keys.createApiKey({ name: "k", permissions: [1], installedApplicationId })),
        failure(keys.deleteInstalledApp({ installedApplicationId })),
      ]);
      // Either goes first, and the other is refused for it.
      expect([made?.code ?? "made", removed?.code ?? "removed"]).toSatisfy(
        ([first, second]) =>
          (first === "made" && second === Code.FailedPrecondition) ||
          (first === Code.InvalidArgument && second === "removed"),
      );
    }
  });
});

describe("the service takes no more than so many", () => {
  let full: TestApi;
  beforeAll(async () => {
    full = await startTestApi({ limits: { maxApiKeys: 4, maxInstalledApps: 2 } });
  });
  afterAll(() => full.stop());

  test("API keys, revoked ones included, however many are asked for at once; removing one makes room", async () => {
    const client = full.client(ApiKeyService);
    const make = () => client.createApiKey({ name: "k", permissions: [1] });
    const outcomes = await Promise.all(Array.from({ length: 8 }, () => failure(make())));
    const refusals = outcomes.filter((outcome) => outcome !== undefined);
    expect(refusals).toHaveLength(5);
    for (const { code, rawMessage } of refusals) {
      expect([code, rawMessage]).toEqual([
        Code.FailedPrecondition,
        expect.stringMatching(/has 4 API keys.*DeleteApiKey.*MAX_API_KEYS/),
      ]);
    }
    const id = (await client.listApiKeys({})).apiKeys.at(-1)?.id as string;
    await client.revokeApiKey({ apiKeyId: id, webhooks: DELETE_WEBHOOKS });
    expect((await failure(make()))?.code).toBe(Code.FailedPrecondition);
    await client.deleteApiKey({ apiKeyId: id });
    await make();
  });

  test("installed apps; removing one makes room", async () => {
    const client = full.client(ApiKeyService);
    const make = () => client.createInstalledApp({ name: "app" });
    const outcomes = await Promise.all(Array.from({ length: 5 }, () => failure(make())));
    const refusals = outcomes.filter((outcome) => outcome !== undefined);
    expect(refusals.map(({ code }) => code)).toEqual(Array(3).fill(Code.FailedPrecondition));
    expect(refusals[0]?.rawMessage).toMatch(/has 2 installed apps.*DeleteInstalledApp.*MAX_INSTALLED_APPS/);
    const [app] = (await client.listInstalledApps({})).installedApps;
    await client.deleteInstalledApp({ installedApplicationId: app?.id as string });
    await make();
  });
});
