import { createHash } from "node:crypto";
import { Code, ConnectError } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import type { WebhookProcess } from "../../../../gen/webhook/v1/event_pb.ts";
import { Permission } from "../../../../gen/webhook/v1/options_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { ensureAdminKey, findApiKey } from "../../../../src/db/keys/api-keys.ts";
import { createSecretBox, webhookSecretContext } from "../../../../src/db/webhooks/secret-box.ts";
import { storeDeliveries } from "../../../support/stored-deliveries.ts";
import { useApi } from "../../../support/test-api.ts";

const api = await useApi();
const keys = api.client(ApiKeyService);
const webhooks = api.client(WebhookService);

let paths = 0;
const register = async (secret: string, process: WebhookProcess = 1) => {
  const url = `https://receiver.example/keys/${++paths}`;
  const { webhook } = await api.client(WebhookService, secret).createWebhook({ process, url });
  return webhook?.id as bigint;
};
const failure = (call: Promise<unknown>) =>
  call.then(
    () => undefined,
    (error: unknown) => ConnectError.from(error),
  );
const listed = async (id: bigint) =>
  (await webhooks.listWebhooks({})).webhooks.find((webhook) => webhook.id === id);

test("a key's secret is shown once, and only its SHA-256 is stored", async () => {
  const made = await keys.createApiKey({ name: "Shop", permissions: [1, 2], allowedProcesses: [3] });
  expect(made.secret).toMatch(/^whk_[\w-]{43}$/);
  expect(made.apiKey?.prefix).toBe(made.secret.slice(0, 12));
  const { apiKeys } = await keys.listApiKeys({});
  expect(apiKeys).toContainEqual(made.apiKey);
  expect(
    JSON.stringify(apiKeys, (_, value) => (typeof value === "bigint" ? String(value) : value)),
  ).not.toContain(made.secret);
  const row = await api.context.db("api_keys").where("id", made.apiKey?.id).first();
  expect(row?.secret_sha256).toEqual(createHash("sha256").update(made.secret).digest());
  expect(JSON.stringify(row)).not.toContain(made.secret);
});

test("a key can belong to an installed app, which must exist", async () => {
  const { installedApp } = await keys.createInstalledApp({ name: "Warehouse" });
  expect((await keys.listInstalledApps({})).installedApps).toContainEqual(installedApp);
  const id = installedApp?.id as string;
  const made = await keys.createApiKey({ name: "k", permissions: [1], installedApplicationId: id });
  expect(made.apiKey?.installedApplicationId).toBe(id);
  for (const unknown of ["00000000-0000-4000-8000-000000000000", "no uuid", ""]) {
    const refused = await failure(
      keys.createApiKey({ name: "k", permissions: [1], installedApplicationId: unknown }),
    );
    expect(refused?.code).toBe(Code.InvalidArgument);
  }
});

test.each<[string, object, string]>([
  ["no name", { name: "" }, "name is required"],
  ["a name of spaces", { name: " \u00a0\t" }, "name must hold more than white space"],
  ["a name of 101 characters", { name: "x".repeat(101) }, "name must have at most 100"],
  ["a null character in its name", { name: "a\0" }, "name"],
  ["a bidi control in its name", { name: "Shop\u202Epohs" }, "name must not hold U+202E"],
  ["a zero-width space in its name", { name: "Sh\u200Bop" }, "name must not hold U+200B"],
  [
    "no permission",
    { permissions: [] },
    "permissions must be one or more of: PERMISSION_READ_ADMINISTRATIVE_DATA",
  ],
  ["an unknown permission", { permissions: [1, 99] }, "PERMISSION_MANAGE_API_KEYS"],
  ["an unspecified permission", { permissions: [0] }, "permissions"],
  ["an unknown process", { allowedProcesses: [99] }, "allowed_processes names 99"],
])("a key with %s is refused", async (_case, more, message) => {
  const refused = await failure(keys.createApiKey({ name: "k", permissions: [1], ...more }));
  expect(refused?.code).toBe(Code.InvalidArgument);
  expect(refused?.rawMessage).toContain(message);
});

test("revoking with transfer gives the webhooks to the other key, and the revoked one is refused at once", async () => {
  const [from, to] = [await api.key(), await api.key()];
  const ids = [await register(from.secret), await register(from.secret, 2)];
  const done = await keys.revokeApiKey({
    apiKeyId: from.id,
    webhooks: { case: "transferToKeyId", value: to.id },
  });
  expect(done).toMatchObject({ webhooksTransferred: 2, webhooksDeleted: 0 });
  expect(done.apiKey?.revoked).toBeDefined();
  for (const id of ids) expect((await listed(id))?.apiKeyId).toBe(to.id);
  const refused = await failure(api.client(WebhookService, from.secret).listWebhooks({}));
  expect(refused?.code).toBe(Code.Unauthenticated);
});

test("revoking with delete deletes the webhooks and cancels their deliveries", async () => {
  const key = await api.key();
  const id = await register(key.secret);
  await storeDeliveries(api.context.db, [{ webhookId: id }]);
  const done = await keys.revokeApiKey({ apiKeyId: key.id, webhooks: { case: "deleteWebhooks", value: {} } });
  expect(done).toMatchObject({ webhooksTransferred: 0, webhooksDeleted: 1 });
  expect(await listed(id)).toBeUndefined();
  const [delivery] = await api.context.db("all_deliveries").where("webhook_id", String(id));
  expect(delivery.state).toBe("cancelled");
});

test("revoking without saying what becomes of the webhooks is refused and changes nothing", async () => {
  const key = await api.key();
  const refused = await failure(keys.revokeApiKey({ apiKeyId: key.id }));
  expect(refused?.code).toBe(Code.InvalidArgument);
  expect(refused?.rawMessage).toContain("transfer_to_key_id or delete_webhooks");
  expect(await findApiKey(api.context.db, key.secret)).not.toBeNull();
});

test("a transfer is refused to itself, to unknown or revoked keys, and to keys that may not have the events", async () => {
  const from = await api.key();
  const id = await register(from.secret, 2);
  const revoked = await api.key();
  await keys.revokeApiKey({ apiKeyId: revoked.id, webhooks: { case: "deleteWebhooks", value: {} } });
  const narrow = await api.key({ allowedProcesses: [1] });
  const unknown = "00000000-0000-4000-8000-000000000000";
  const cases: [string, Code, string][] = [
    [from.id, Code.InvalidArgument, "another key"],
    [from.id.toUpperCase(), Code.InvalidArgument, "another key"],
    ["x", Code.InvalidArgument, "UUID"],
    [unknown, Code.NotFound, unknown],
    [revoked.id, Code.FailedPrecondition, "revoked"],
    [narrow.id, Code.FailedPrecondition, "DocumentCreated"],
  ];
  for (const [to, code, message] of cases) {
    const refused = await failure(
      keys.revokeApiKey({ apiKeyId: from.id, webhooks: { case: "transferToKeyId", value: to } }),
    );
    expect([refused?.code, refused?.rawMessage]).toEqual([code, expect.stringContaining(message)]);
  }
  expect((await listed(id))?.apiKeyId).toBe(from.id);
  expect(await findApiKey(api.context.db, from.secret)).not.toBeNull();
});

test("revoking twice is FAILED_PRECONDITION, an unknown key NOT_FOUND", async () => {
  const { id } = await api.key();
  const fate = { case: "deleteWebhooks", value: {} } as const;
  await keys.revokeApiKey({ apiKeyId: id, webhooks: fate });
  expect((await failure(keys.revokeApiKey({ apiKeyId: id, webhooks: fate })))?.code).toBe(
    Code.FailedPrecondition,
  );
  const unknown = "00000000-0000-4000-8000-000000000000";
  expect((await failure(keys.revokeApiKey({ apiKeyId: unknown, webhooks: fate })))?.code).toBe(Code.NotFound);
});

test("webhooks registered while their key is revoked are never left behind under it", async () => {
  for (let round = 0; round < 5; round++) {
    const [from, to] = [await api.key(), await api.key()];
    const creates = Array.from({ length: 10 }, () => failure(register(from.secret)));
    const revoke = keys.revokeApiKey({
      apiKeyId: from.id,
      webhooks: { case: "transferToKeyId", value: to.id },
    });
    const refusals = await Promise.all(creates);
    await revoke;
    expect(new Set(refusals.map((refusal) => refusal?.code ?? Code.Unauthenticated))).toEqual(
      new Set([Code.Unauthenticated]),
    );
    const left = await api.context.db("webhooks").where({ api_key_id: from.id }).whereNull("deleted");
    expect(left).toEqual([]);
  }
});

test("two keys transferred to each other at once come to an end without a deadlock", async () => {
  const [a, b] = [await api.key(), await api.key()];
  const revoke = (from: string, to: string) =>
    failure(keys.revokeApiKey({ apiKeyId: from, webhooks: { case: "transferToKeyId", value: to } }));
  const outcomes = await Promise.all([revoke(a.id, b.id), revoke(b.id, a.id)]);
  expect(outcomes.map((outcome) => outcome?.code ?? "OK").sort()).toEqual(
    [Code.FailedPrecondition, "OK"].sort(),
  );
});

test("the administrator's key is made once, however many processes ask for it, and made good again", async () => {
  const secret = "whk_given-from-outside";
  const made = await Promise.all(Array.from({ length: 5 }, () => ensureAdminKey(api.context.db, secret)));
  expect(new Set(made.map(({ key }) => key.id)).size).toBe(1);
  expect(made[0]?.key.permissions).toContain(Permission.MANAGE_API_KEYS);
  await api.context
    .db("api_keys")
    .where("id", made[0]?.key.id)
    .update({ revoked: new Date(), permissions: [] });
  await ensureAdminKey(api.context.db, secret);
  expect((await findApiKey(api.context.db, secret))?.permissions).toEqual(made[0]?.key.permissions);
});

test("of a key that an operator chose, no more than four characters are stored in clear text", async () => {
  const secret = "chosen-by-an-operator-0123456789";
  const { id } = (await ensureAdminKey(api.context.db, secret)).key;
  const stored = async () => {
    const found = await api.context.db.raw("select k::text as row from api_keys k where id = ?", [id]);
    return found.rows[0].row as string;
  };
  expect(await stored()).toContain(",chos,");
  expect(await stored()).not.toContain("chose");
  // As an earlier version stored it.
  await api.context
    .db("api_keys")
    .where("id", id)
    .update({ prefix: secret.slice(0, 12) });
  await ensureAdminKey(api.context.db, secret);
  expect(await stored()).not.toContain("chose");
});

test("a webhook's signing secret can be read by those who may write, and is sealed at rest", async () => {
  const id = await register(api.adminKey);
  const { secret } = await webhooks.getWebhookSecret({ webhookId: id });
  expect(secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  const bytes = Buffer.from(secret.slice("whsec_".length), "base64");
  const row = await api.context.db("webhooks").where({ id }).first();
  expect(row?.secret.includes(bytes)).toBe(false);
  expect(api.context.secrets.open(row?.secret as Buffer, webhookSecretContext(id))).toEqual(bytes);
  const other = await webhooks.getWebhookSecret({ webhookId: await register(api.adminKey) });
  expect(other.secret).not.toBe(secret);
  expect((await failure(webhooks.getWebhookSecret({ webhookId: 4711n })))?.code).toBe(Code.NotFound);
});

test("a sealed secret opens with its key and context only, untouched, and errors tell nothing of it", () => {
  const box = createSecretBox(Buffer.alloc(32, 1));
  const sealed = box.seal("hush", "a");
  expect(box.open(sealed, "a").toString()).toBe("hush");
  expect(box.seal("hush", "a")).not.toEqual(sealed);
  expect(() => box.open(sealed, "b")).toThrow("cannot be opened");
  expect(() => createSecretBox(Buffer.alloc(32, 2)).open(sealed, "a")).toThrow("neither SECRET_KEY");
  for (let at = 0; at < sealed.length; at++) {
    const damaged = Buffer.from(sealed);
    damaged.writeUInt8(damaged.readUInt8(at) ^ 1, at);
    expect(() => box.open(damaged, "a")).toThrow(/damaged/);
  }
  expect(() => box.open(sealed.subarray(0, 10), "a")).toThrow("damaged");
  expect(() => createSecretBox(Buffer.alloc(16))).toThrow("32 bytes");
});
