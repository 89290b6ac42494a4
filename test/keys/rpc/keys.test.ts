import { Code } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import type { WebhookProcess } from "../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../gen/webhook/v1/options_pb.ts";
import { ensureAdminKey, findApiKeys } from "../../../src/keys/api-keys.ts";
import { createSecretBox } from "../../../src/webhooks/secret-box.ts";
import { failure } from "../../support/failure.ts";
import { expectRefused } from "../../support/refusals.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { useApi } from "../../support/test-api.ts";

const api = await useApi();
const { db } = api.context;
const { keys, webhooks } = api;

const transfer = (apiKeyId: string, value: string) =>
  keys.revokeApiKey({ apiKeyId, webhooks: { case: "transferToKeyId", value } });
const listed = async (id: bigint) =>
  (await webhooks.listWebhooks({})).webhooks.find((webhook) => webhook.id === id);

test("a key can belong to an installed app, and is listed as it was made", async () => {
  const { installedApp } = await keys.createInstalledApp({ name: "Warehouse" });
  expect((await keys.listInstalledApps({})).installedApps).toContainEqual(installedApp);
  const installedApplicationId = installedApp?.id as string;
  const { apiKey } = await keys.createApiKey({ name: "k", permissions: [1, 2], installedApplicationId });
  expect(apiKey).toMatchObject({ installedApplicationId, permissions: [1, 2] });
  expect((await keys.listApiKeys({})).apiKeys).toContainEqual(apiKey);
});

test.each([
  "فروشگاه\u200cها",
  "👩\u200d💻",
  "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}",
  "Bäckerei № 1",
])("keys, apps and webhooks are named %s", async (name) => {
  const { apiKey } = await keys.createApiKey({ name, permissions: [1] });
  const { installedApp } = await keys.createInstalledApp({ name });
  const { webhook } = await api.webhooks.updateWebhook({ webhookId: await api.register(), name });
  expect([apiKey?.name, installedApp?.name, webhook?.name]).toEqual([name, name, name]);
});

test.each<[string, object, string]>([
  ["a name of spaces", { name: " \u00a0\t" }, "name must hold more than white space"],
  ["a name that nothing shows", { name: "\u200c\u200d" }, "name must hold more than white space"],
  ["a bidi control in its name", { name: "Shop\u202Epohs" }, "name must not hold U+202E"],
  ["a zero-width space in its name", { name: "Sh\u200Bop" }, "name must not hold U+200B"],
  ["an unspecified permission", { permissions: [0] }, "permissions must be one or more of: PERMISSION_READ"],
])("a key with %s is refused", async (_case, more, message) => {
  const call = keys.createApiKey({ name: "k", permissions: [1], ...more });
  await expectRefused(call, Code.InvalidArgument, message);
});

describe("revoking a key", () => {
  test("transfers its webhooks to another key or deletes them and cancels their deliveries; it is refused at once", async () => {
    const [from, to] = [await api.key(), await api.key()];
    const register = (process: WebhookProcess) => api.register({ key: from.secret, process });
    const ids = [await register(1), await register(2)] as const;
    await storeDeliveries(db, [{ webhookId: ids[0] }]);
    const done = await transfer(from.id, to.id);
    expect(done).toMatchObject({ webhooksTransferred: 2, webhooksDeleted: 0 });
    expect(done.apiKey?.revoked).toBeDefined();
    for (const id of ids) expect((await listed(id))?.apiKeyId).toBe(to.id);
    await expectRefused(api.as(from.secret).webhooks.listWebhooks({}), Code.Unauthenticated);
    expect(await api.revoke(to.id)).toMatchObject({ webhooksTransferred: 0, webhooksDeleted: 2 });
    expect(await listed(ids[0])).toBeUndefined();
    const states = await db("all_deliveries").where("webhook_id", String(ids[0])).pluck("state");
    expect(states).toEqual(["cancelled"]);
  });

  test("transfers nothing to itself, to unknown or revoked keys, and to keys that may not have the events", async () => {
    const from = await api.key();
    const id = await api.register({ key: from.secret, process: 2 });
    const [revoked, narrow] = [await api.key(), await api.key({ allowedProcesses: [1] })];
    await api.revoke(revoked.id);
    const unknown = "00000000-0000-4000-8000-000000000000";
    for (const [to, code, message] of [
      [from.id, Code.InvalidArgument, "another key"],
      [from.id.toUpperCase(), Code.InvalidArgument, "another key"],
      [unknown, Code.NotFound, unknown],
      [revoked.id, Code.FailedPrecondition, "revoked"],
      [narrow.id, Code.FailedPrecondition, "DocumentCreated"],
    ] as const)
      await expectRefused(transfer(from.id, to), code, message);
    expect((await listed(id))?.apiKeyId).toBe(from.id);
    expect((await findApiKeys(db, [from.secret]))[0]).not.toBeNull();
  });

  test("leaves no webhook behind that is registered with it meanwhile", async () => {
    const [from, to] = [await api.key(), await api.key()];
    const creates = Array.from({ length: 30 }, () => failure(api.register({ key: from.secret })));
    const revoked = transfer(from.id, to.id);
    const refusals = (await Promise.all(creates)).flatMap((error) => error?.code ?? []);
    await revoked;
    expect(refusals).toEqual(refusals.map(() => Code.Unauthenticated));
    expect(await db("webhooks").where({ api_key_id: from.id }).whereNull("deleted")).toEqual([]);
  });

  test("and another one, each transferred to the other at once, comes to an end without a deadlock", async () => {
    const [a, b] = [await api.key(), await api.key()];
    const outcomes = await Promise.all([failure(transfer(a.id, b.id)), failure(transfer(b.id, a.id))]);
    expect(outcomes.flatMap((outcome) => outcome?.code ?? [])).toEqual([Code.FailedPrecondition]);
  });
});

test("the administrator's key is made once, however many processes ask for it, and made good again", async () => {
  const secret = "whk_given-from-outside";
  const made = await Promise.all(Array.from({ length: 5 }, () => ensureAdminKey(db, secret)));
  expect(new Set(made.map(({ key }) => key.id)).size).toBe(1);
  const { id, permissions } = (made[0] as (typeof made)[0]).key;
  expect(permissions).toContain(Permission.MANAGE_API_KEYS);
  await db("api_keys").where({ id }).update({ revoked: new Date(), permissions: [] });
  await ensureAdminKey(db, secret);
  expect((await findApiKeys(db, [secret]))[0]?.permissions).toEqual(permissions);
});

test("of a key that an operator chose, no more than four characters are stored in clear text", async () => {
  const secret = "chosen-by-an-operator-0123456789";
  const { id } = (await ensureAdminKey(db, secret)).key;
  const stored = async () => JSON.stringify(await db("api_keys").where({ id }).first());
  expect(await stored()).toMatch(/"chos"/);
  expect(await stored()).not.toContain("chose");
  // As an earlier version stored it.
  await db("api_keys").where({ id }).update("prefix", secret.slice(0, 12));
  await ensureAdminKey(db, secret);
  expect(await stored()).not.toContain("chose");
});

test("a sealed secret opens untouched only", () => {
  const box = createSecretBox(Buffer.alloc(32, 1));
  const sealed = box.seal("hush", "a");
  expect(box.seal("hush", "a")).not.toEqual(sealed);
  for (let at = 0; at < sealed.length; at++) {
    const damaged = Buffer.from(sealed);
    damaged.writeUInt8(damaged.readUInt8(at) ^ 1, at);
    expect(() => box.open(damaged, "a")).toThrow(/damaged/);
  }
  expect(() => box.open(sealed.subarray(0, 10), "a")).toThrow("damaged");
  expect(() => createSecretBox(Buffer.alloc(16))).toThrow("32 bytes");
});
