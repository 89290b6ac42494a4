import { createHash } from "node:crypto";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, describe, expect, test } from "vitest";
import { ApiKeyService } from "../../../../gen/webhook/v1/api_key_pb.ts";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { createKeyUse } from "../../../../src/api/auth/key-use.ts";
import { recordKeyUse } from "../../../../src/db/keys/api-keys.ts";
import { forgetExpiredSecrets } from "../../../../src/db/webhooks/webhook-secrets.ts";
import { failure } from "../../../support/failure.ts";
import { startTestApi, type TestApi, useApi } from "../../../support/test-api.ts";

const DAY = 24 * 3_600_000;
const api = await useApi();
/** Another server on the same database, as another process would be. */
const other = await startTestApi({ databaseUrl: api.databaseUrl });
const keys = api.client(ApiKeyService);
afterAll(async () => {
  await other.stop();
});

const statusOf = async (key: string, on: TestApi = api) =>
  (await on.rest("GET", "/api/webhook/list", { key })).status;
const listed = async (id: string) => (await keys.listApiKeys({})).apiKeys.find((key) => key.id === id);

describe("rotating a key", () => {
  test("gives it another secret under the same id, permissions and webhooks, and refuses the old one at once everywhere", async () => {
    const { id, secret } = await api.key({ name: "Shop", allowedProcesses: [1] });
    const { webhook } = await api.client(WebhookService, secret).createWebhook({
      process: 1,
      url: "https://receiver.example/rotation",
    });
    expect(await statusOf(secret, other)).toBe(200);

    const rotated = await keys.rotateApiKey({ apiKeyId: id });
    expect(rotated.secret).toMatch(/^whk_[\w-]{43}$/);
    expect(rotated.secret).not.toBe(secret);
    expect(rotated.apiKey).toMatchObject({ id, name: "Shop", allowedProcesses: [1] });
    expect(rotated.apiKey?.prefix).toBe(rotated.secret.slice(0, 12));
    expect(await Promise.all([statusOf(secret), statusOf(secret, other)])).toEqual([401, 401]);
    expect(await Promise.all([statusOf(rotated.secret), statusOf(rotated.secret, other)])).toEqual([
      200, 200,
    ]);
    const { webhooks } = await api.client(WebhookService, rotated.secret).listWebhooks({});
    expect(webhooks.find((one) => one.id === webhook?.id)?.apiKeyId).toBe(id);
  });

  test("takes the old secret for as long as it was told, and says until when", async () => {
    const { id, secret } = await api.key();
    const rotated = await keys.rotateApiKey({ apiKeyId: id, gracePeriod: { seconds: 3_600n } });
    const expires = rotated.apiKey?.oldSecretsExpire;
    expect(Math.abs(timestampDate(expires as never).getTime() - Date.now() - 3_600_000)).toBeLessThan(60_000);
    expect((await listed(id))?.oldSecretsExpire).toEqual(expires);
    for (const server of [api, other]) {
      expect([await statusOf(secret, server), await statusOf(rotated.secret, server)]).toEqual([200, 200]);
    }
    await api.context
      .db("api_key_old_secrets")
      .where("api_key_id", id)
      .update({ expires: new Date(Date.now() - 1_000) });
    expect([await statusOf(secret), await statusOf(rotated.secret)]).toEqual([401, 200]);
    expect((await listed(id))?.oldSecretsExpire).toBeUndefined();
  });

  test("again within the time keeps the promise made to the first secret; without a time it ends all", async () => {
    const { id, secret: first } = await api.key();
    const gracePeriod = { seconds: 3_600n };
    const { secret: second } = await keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    const { secret: third } = await keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    expect(await Promise.all([first, second, third].map((each) => statusOf(each)))).toEqual([200, 200, 200]);
    const { secret: fourth } = await keys.rotateApiKey({ apiKeyId: id });
    expect(await Promise.all([first, second, third, fourth].map((each) => statusOf(each)))).toEqual([
      401, 401, 401, 200,
    ]);
  });

  test("stores only the SHA-256 of its secrets, old and new", async () => {
    const { id, secret } = await api.key();
    const rotated = await keys.rotateApiKey({ apiKeyId: id, gracePeriod: { seconds: 60n } });
    const row = await api.context.db("api_keys").where("id", id).first();
    const old = await api.context.db("api_key_old_secrets").where("api_key_id", id).first();
    const sha256 = (text: string) => createHash("sha256").update(text).digest();
    expect([row?.secret_sha256, old?.secret_sha256]).toEqual([sha256(rotated.secret), sha256(secret)]);
  });

  test("leaves no trace of an old secret once it has expired and the hourly clean-up has come", async () => {
    const { db } = api.context;
    const old = async (id: string) => (await db("api_key_old_secrets").where("api_key_id", id)).length;
    const [expired, valid] = [await api.key(), await api.key()];
    for (const { id } of [expired, valid]) {
      await keys.rotateApiKey({ apiKeyId: id, gracePeriod: { seconds: 3_600n } });
    }
    await db("api_key_old_secrets").where("api_key_id", expired.id).update({ expires: new Date() });
    await forgetExpiredSecrets(db);
    expect([await old(expired.id), await old(valid.id)]).toEqual([0, 1]);
    expect(await statusOf(valid.secret)).toBe(200);
  });

  test("allows five secrets at once, and names the way out", async () => {
    const { id } = await api.key();
    const gracePeriod = { seconds: 3_600n };
    for (let n = 0; n < 4; n += 1) await keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    const refused = await failure(keys.rotateApiKey({ apiKeyId: id, gracePeriod }));
    expect(refused?.code).toBe(Code.FailedPrecondition);
    expect(refused?.rawMessage).toMatch(/5 valid secrets.*rotate again after .*without grace_period/);
    await keys.rotateApiKey({ apiKeyId: id });
  });

  test("revokes its old secrets with it", async () => {
    const { id, secret } = await api.key();
    await keys.rotateApiKey({ apiKeyId: id, gracePeriod: { seconds: 3_600n } });
    await keys.revokeApiKey({ apiKeyId: id, webhooks: { case: "deleteWebhooks", value: {} } });
    expect(await Promise.all([statusOf(secret), statusOf(secret, other)])).toEqual([401, 401]);
    expect((await listed(id))?.oldSecretsExpire).toBeUndefined();
    expect((await failure(keys.rotateApiKey({ apiKeyId: id })))?.code).toBe(Code.FailedPrecondition);
  });

  test.each([
    [{ seconds: BigInt((7 * DAY) / 1_000), nanos: 1 }],
    [{ seconds: -1n }],
    [{ seconds: 0n, nanos: -1 }],
  ])("refuses a grace period of %o: it is 0 to 7 days", async (gracePeriod) => {
    const { id, secret } = await api.key();
    const refused = await failure(keys.rotateApiKey({ apiKeyId: id, gracePeriod }));
    expect(refused?.code).toBe(Code.InvalidArgument);
    expect(refused?.rawMessage).toContain("grace_period must be 0 to 7 days");
    expect(await statusOf(secret)).toBe(200);
  });

  test("of keys that do not exist is NOT_FOUND", async () => {
    const unknown = "00000000-0000-4000-8000-000000000000";
    expect((await failure(keys.rotateApiKey({ apiKeyId: unknown })))?.code).toBe(Code.NotFound);
    expect((await failure(keys.rotateApiKey({ apiKeyId: "x" })))?.code).toBe(Code.InvalidArgument);
  });
});

test("a key revoked on one server is refused by another from the next request on", async () => {
  for (let round = 0; round < 10; round += 1) {
    const { id, secret } = await api.key();
    expect(await statusOf(secret, other)).toBe(200);
    await keys.revokeApiKey({ apiKeyId: id, webhooks: { case: "deleteWebhooks", value: {} } });
    expect(await statusOf(secret, other)).toBe(401);
  }
});

describe("the time a key was last used", () => {
  test("is listed once it was used, without a request waiting for it", async () => {
    const { id, secret } = await api.key();
    expect((await listed(id))?.lastUsed).toBeUndefined();
    const before = Date.now();
    await statusOf(secret);
    await expect.poll(async () => (await listed(id))?.lastUsed).toBeDefined();
    const lastUsed = timestampDate((await listed(id))?.lastUsed as never).getTime();
    expect(lastUsed).toBeGreaterThanOrEqual(before);
    expect(lastUsed).toBeLessThanOrEqual(Date.now());
  });

  test("is written once a minute, however many processes the key is used with", async () => {
    const { id } = await api.key();
    const { db } = api.context;
    const lastUsed = async () => (await db("api_keys").where("id", id).first())?.last_used as Date;
    const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second));
    await recordKeyUse(db, [{ id, at: at(0) }], 60_000);
    await recordKeyUse(db, [{ id, at: at(59) }], 60_000);
    expect(await lastUsed()).toEqual(at(0));
    await recordKeyUse(db, [{ id, at: at(60) }], 60_000);
    expect(await lastUsed()).toEqual(at(60));
    await recordKeyUse(db, [{ id, at: at(30) }], 60_000);
    expect(await lastUsed()).toEqual(at(60));
  });

  test("waits for nobody who holds the key's row", async () => {
    const { id } = await api.key();
    const { db } = api.context;
    await db.transaction(async (trx) => {
      await trx("api_keys").where("id", id).forUpdate();
      await recordKeyUse(db, [{ id, at: new Date() }], 60_000);
    });
    expect((await listed(id))?.lastUsed).toBeUndefined();
  });

  test("is written at the end, when the service stops before its turn has come", async () => {
    const { id } = await api.key();
    const use = createKeyUse(api.context.db, pino({ level: "silent" }), 3_600_000);
    use.note(id);
    await use.close();
    expect((await listed(id))?.lastUsed).toBeDefined();
  });
});
