import { expect, test } from "vitest";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { ALL_PERMISSIONS } from "../../../src/keys/api-keys.ts";
import { freshUrl, ONLY, useApi } from "../../support/test-api.ts";

const api = await useApi();
const { keys } = api;

const { READ_ADMINISTRATIVE_DATA, WRITE_ADMINISTRATIVE_DATA } = Permission;

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
    const status = async (headers: Record<string, string>) =>
      (await api.rest(method, path, { key: null, headers })).status;
    for (const name of ["X-Service-Key", "x-service-key", "X-SERVICE-KEY"])
      expect(await status({ [name]: api.adminKey })).not.toBe(401);
    expect(await status({ Authorization: `Bearer ${api.adminKey}` })).toBe(401);
  },
);

const [LIST, CREATE, DELETE] = ENDPOINTS;
test.each([
  ["§5.2: listing takes Read_Administrative_Data and nothing more", LIST, READ_ADMINISTRATIVE_DATA],
  ["§5.2: creating takes Write_Administrative_Data and nothing more", CREATE, WRITE_ADMINISTRATIVE_DATA],
  ["§5.2: deleting takes Write_Administrative_Data and nothing more", DELETE, WRITE_ADMINISTRATIVE_DATA],
] as const)("%s", async (title, [method, path], needed) => {
  const request = {
    GET: {},
    POST: { json: { process: 1, url: freshUrl() } },
    DELETE: { json: { webhookId: String(await api.register()) } },
  }[method];
  const others = await api.key({ permissions: ALL_PERMISSIONS.filter((each) => each !== needed) });
  const refused = await api.rest(method, path, { ...request, key: others.secret });
  expect([refused.status, refused.envelope.Success]).toEqual([403, false]);
  expect(refused.envelope.Warnings[0]).toContain(title.split(" ")[3]);
  const { secret } = await api.key({ permissions: [needed] });
  expect((await api.rest(method, path, { ...request, key: secret })).status).toBe(200);
});

test("§5.3: a key is made with chosen permissions, has these only, and can be used at once", async () => {
  const made = await keys.createApiKey({ name: "Shop", permissions: ONLY.read });
  expect(made.apiKey).toMatchObject({ name: "Shop", permissions: ONLY.read, allowedProcesses: [] });
  expect((await api.rest("GET", "/api/webhook/list", { key: made.secret })).status).toBe(200);
  expect((await api.rest("POST", "/api/webhook", { key: made.secret })).status).toBe(403);
});

test("§5.4: a webhook is registered under the key that created it", async () => {
  const { id, secret } = await api.key();
  const webhookId = await api.register({ key: secret });
  expect(await api.webhooks.getWebhook({ webhookId })).toMatchObject({ webhook: { apiKeyId: id } });
});

test("§5.4: a key may subscribe to its allowed events only, and the error lists them", async () => {
  const { secret: key } = await api.key({ allowedProcesses: [1, 3] });
  const create = (process: number) =>
    api.rest("POST", "/api/webhook", { key, json: { process, url: freshUrl() } });
  expect([(await create(1)).status, (await create(3)).status]).toEqual([200, 200]);
  const { status, envelope } = await create(2);
  const message = "may not subscribe to DocumentCreated, only to OrderDispatched, StockLevelChanged";
  expect([status, envelope.Warnings]).toEqual([403, [`the API key ${message}`]]);
});

test("§5.5: the webhooks of an installed app's key carry its InstalledApplicationId, webhooks of other keys carry none", async () => {
  const installedAppId = await api.app();
  const ofApp = await api.key({ installedAppId });
  const make = async (key: string) =>
    (await api.rest("POST", "/api/webhook", { key, json: { process: 1, url: freshUrl() } })).envelope.Data
      .Application;
  expect(await make(ofApp.secret)).toBe(installedAppId);
  expect(await make(api.adminKey)).toBeNull();
});

test.each(ENDPOINTS)(
  "§5.6: %s %s without a key, or with an unknown or revoked one, is 401 in the envelope",
  async (method, path) => {
    const revoked = await api.key();
    await api.revoke(revoked.id);
    const refused = { Success: false, Data: null, Warnings: [expect.stringContaining("X-Service-Key")] };
    const long = "x".repeat(8_000);
    for (const key of [null, "", "unknown", revoked.secret, `${api.adminKey}x`, "schlüssel", long])
      expect(await api.rest(method, path, { key })).toMatchObject({ status: 401, envelope: refused });
  },
);

test("§5.6: a call without permission is refused before its request is checked", async () => {
  const bad = { raw: { body: "{", type: "application/json" } };
  const reader = (await api.key({ permissions: ONLY.read })).secret;
  for (const [key, status] of [
    [null, 401],
    [reader, 403],
    [api.adminKey, 400],
  ] as const) {
    expect((await api.rest("POST", "/api/webhook", { ...bad, key })).status).toBe(status);
  }
});
