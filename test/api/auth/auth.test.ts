import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ApiKeyService } from "../../../gen/webhook/v1/api_key_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../../gen/webhook/v1/webhook_pb.ts";
import { createInstalledApp } from "../../../src/db/keys/installed-apps.ts";
import { grpc } from "../../support/clients.ts";
import { ONLY, startTestApi, type TestApi } from "../../support/test-api.ts";

let api: TestApi;
beforeAll(async () => {
  api = await startTestApi();
});
afterAll(() => api.stop());

let paths = 0;
const freshUrl = () => `https://receiver.example/auth/${++paths}`;

const ENDPOINTS = [
  ["GET", "/api/webhook/list"],
  ["POST", "/api/webhook"],
  ["DELETE", "/api/webhook"],
] as const;

test.each(ENDPOINTS)(
  "§4: %s %s requires the key, and answers in the envelope with and without",
  async (method, path) => {
    for (const key of [api.adminKey, null]) {
      const { status, envelope } = await api.rest(method, path, { key });
      expect(status === 401).toBe(key === null);
      expect(Object.keys(envelope)).toEqual(["Success", "Data", "Warnings"]);
    }
  },
);

test.each(ENDPOINTS)(
  "§5.1: %s %s reads the key from X-Service-Key, whatever the case of its name",
  async (method, path) => {
    for (const name of ["X-Service-Key", "x-service-key", "X-SERVICE-KEY"]) {
      const { status } = await api.rest(method, path, { key: null, headers: { [name]: api.adminKey } });
      expect(status).not.toBe(401);
    }
    const elsewhere = { Authorization: `Bearer ${api.adminKey}` };
    expect((await api.rest(method, path, { key: null, headers: elsewhere })).status).toBe(401);
  },
);

test("§5.2: listing takes Read_Administrative_Data and nothing more", async () => {
  const reader = await api.key({ permissions: ONLY.read });
  expect((await api.rest("GET", "/api/webhook/list", { key: reader.secret })).status).toBe(200);
  const others = await api.key({
    permissions: [
      Permission.WRITE_ADMINISTRATIVE_DATA,
      Permission.PUBLISH_EVENTS,
      Permission.MANAGE_API_KEYS,
    ],
  });
  const refused = await api.rest("GET", "/api/webhook/list", { key: others.secret });
  expect(refused.status).toBe(403);
  expect(refused.envelope.Success).toBe(false);
  expect(refused.envelope.Warnings[0]).toContain("Read_Administrative_Data");
});

test("§5.2: creating and deleting take Write_Administrative_Data and nothing more", async () => {
  const writer = await api.key({ permissions: ONLY.write });
  const parameters = { process: 1, url: freshUrl() };
  const made = await api.rest("POST", "/api/webhook", { key: writer.secret, json: parameters });
  expect(made.status).toBe(200);
  const webhookId = made.envelope.Data.Id;
  const reader = await api.key({ permissions: ONLY.read });
  for (const [method, json] of [
    ["POST", parameters],
    ["DELETE", { webhookId }],
  ] as const) {
    const refused = await api.rest(method, "/api/webhook", { key: reader.secret, json });
    expect(refused.status).toBe(403);
    expect(refused.envelope.Warnings[0]).toContain("Write_Administrative_Data");
  }
  expect((await api.rest("DELETE", "/api/webhook", { key: writer.secret, json: { webhookId } })).status).toBe(
    200,
  );
});

test("§5.3: a key is made with chosen permissions, has these only, and can be used at once", async () => {
  const keys = createClient(ApiKeyService, grpc(api));
  const made = await keys.createApiKey({ name: "Shop", permissions: [Permission.READ_ADMINISTRATIVE_DATA] });
  expect(made.apiKey).toMatchObject({ name: "Shop", permissions: ONLY.read, allowedProcesses: [] });
  expect((await api.rest("GET", "/api/webhook/list", { key: made.secret })).status).toBe(200);
  expect((await api.rest("POST", "/api/webhook", { key: made.secret })).status).toBe(403);
});

test("§5.4: a webhook is registered under the key that created it", async () => {
  const key = await api.key();
  const { webhook } = await createClient(WebhookService, grpc(api, key.secret)).createWebhook({
    process: 1,
    url: freshUrl(),
  });
  expect(webhook?.apiKeyId).toBe(key.id);
});

test("§5.4: a key may subscribe to its allowed events only, and is told which", async () => {
  const key = await api.key({ allowedProcesses: [1, 3] });
  const create = (process: number) =>
    api.rest("POST", "/api/webhook", { key: key.secret, json: { process, url: freshUrl() } });
  expect((await create(1)).status).toBe(200);
  expect((await create(3)).status).toBe(200);
  const refused = await create(2);
  expect(refused.status).toBe(403);
  expect(refused.envelope.Warnings).toEqual([
    "the API key may not subscribe to DocumentCreated, only to OrderDispatched, StockLevelChanged",
  ]);
});

test("§5.5: the webhooks of an installed app's key carry its InstalledApplicationId, those of other keys none", async () => {
  const app = await createInstalledApp(api.context.db, "Shop");
  const ofApp = await api.key({ installedAppId: app.id });
  const make = async (key: string) =>
    (await api.rest("POST", "/api/webhook", { key, json: { process: 1, url: freshUrl() } })).envelope.Data
      .Application;
  expect(await make(ofApp.secret)).toBe(app.id);
  expect(await make(api.adminKey)).toBeNull();
});

test.each(ENDPOINTS)(
  "§5.6: %s %s without a key, or with an unknown or revoked one, is 401 in the envelope",
  async (method, path) => {
    const revoked = await api.key();
    const keys = createClient(ApiKeyService, grpc(api));
    await keys.revokeApiKey({ apiKeyId: revoked.id, webhooks: { case: "deleteWebhooks", value: {} } });
    const long = "x".repeat(8_000);
    for (const key of [null, "", "unknown", revoked.secret, `${api.adminKey}x`, "schlüssel", long]) {
      const { status, envelope } = await api.rest(method, path, { key });
      expect(status).toBe(401);
      expect(envelope).toEqual({
        Success: false,
        Data: null,
        Warnings: [expect.stringContaining("X-Service-Key")],
      });
    }
  },
);

test("§5.6: who may not call is told so before anything about the request", async () => {
  const bad = { raw: { body: "{", type: "application/json" } };
  expect((await api.rest("POST", "/api/webhook", { ...bad, key: null })).status).toBe(401);
  expect(
    (
      await api.rest("POST", "/api/webhook", {
        ...bad,
        key: (await api.key({ permissions: ONLY.read })).secret,
      })
    ).status,
  ).toBe(403);
  expect((await api.rest("POST", "/api/webhook", bad)).status).toBe(400);
});

test("over gRPC the same refusals are UNAUTHENTICATED and PERMISSION_DENIED, in the contract's words", async () => {
  const codeOf = (call: Promise<unknown>) =>
    call.then(
      () => null,
      (error: unknown) => ConnectError.from(error),
    );
  const unknown = await codeOf(createClient(WebhookService, grpc(api, "unknown")).listWebhooks({}));
  expect(unknown?.code).toBe(Code.Unauthenticated);
  const reader = await api.key({ permissions: ONLY.read });
  const denied = await codeOf(createClient(ApiKeyService, grpc(api, reader.secret)).listApiKeys({}));
  expect(denied?.code).toBe(Code.PermissionDenied);
  expect(denied?.rawMessage).toContain("Manage_Api_Keys");
});
