import { createHash } from "node:crypto";
import { Code } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, describe, expect, test } from "vitest";
import { createKeyUse } from "../../../../src/api/auth/key-use.ts";
import { recordKeyUse } from "../../../../src/db/keys/api-keys.ts";
import { forgetExpiredSecrets } from "../../../../src/db/webhooks/webhook-secrets.ts";
import { expectWithin, timed } from "../../../support/database-time.ts";
import { expectRefused } from "../../../support/refusals.ts";
import { startTestApi, type TestApi, useApi } from "../../../support/test-api.ts";

const HOUR = 3_600_000;
const gracePeriod = { seconds: 3_600n };
const api = await useApi();
const { db } = api.context;
/** Another server on the same database, as another process would be. */
const other = await startTestApi({ databaseUrl: api.databaseUrl });
afterAll(() => other.stop());
const { keys } = api;

const listed = async (id: string) => (await keys.listApiKeys({})).apiKeys.find((key) => key.id === id);
const oldSecrets = (id: string) => db("api_key_old_secrets").where("api_key_id", id);

/** The status of a call with each of the secrets. */
async function statuses(secrets: string[], on: TestApi = api): Promise<number[]> {
  const answers = secrets.map((key) => on.rest("GET", "/api/webhook/list", { key }));
  return (await Promise.all(answers)).map(({ status }) => status);
}

describe("rotating a key", () => {
  test("gives it another secret under the same id, permissions and webhooks, and refuses the old one at once everywhere", async () => {
    const { id, secret } = await api.key({ name: "Shop", allowedProcesses: [1] });
    const webhookId = await api.register({ key: secret });
    expect(await statuses([secret], other)).toEqual([200]);
    const rotated = await keys.rotateApiKey({ apiKeyId: id });
    expect(rotated.secret).toMatch(/^whk_[\w-]{43}$/);
    expect(rotated.apiKey).toMatchObject({ id, name: "Shop", allowedProcesses: [1] });
    expect(rotated.apiKey?.prefix).toBe(rotated.secret.slice(0, 12));
    for (const server of [api, other])
      expect(await statuses([secret, rotated.secret], server)).toEqual([401, 200]);
    const { webhook } = await api.as(rotated.secret).webhooks.getWebhook({ webhookId });
    expect(webhook?.apiKeyId).toBe(id);
  });

  test("takes the old secret for as long as it was told, and says until when", async () => {
    const { id, secret } = await api.key();
    const [rotated, span] = await timed(db, () => keys.rotateApiKey({ apiKeyId: id, gracePeriod }));
    expectWithin(span, rotated.apiKey?.oldSecretsExpire, HOUR);
    expect((await listed(id))?.oldSecretsExpire).toEqual(rotated.apiKey?.oldSecretsExpire);
    for (const server of [api, other])
      expect(await statuses([secret, rotated.secret], server)).toEqual([200, 200]);
    await oldSecrets(id).update({ expires: db.raw("now() - interval '1 second'") });
    expect(await statuses([secret, rotated.secret])).toEqual([401, 200]);
    expect((await listed(id))?.oldSecretsExpire).toBeUndefined();
  });

  test("again within the time keeps the promise made to the first secret; without a time it ends all", async () => {
    const { id, secret } = await api.key();
    const secrets = [secret];
    for (let n = 0; n < 2; n += 1)
      secrets.push((await keys.rotateApiKey({ apiKeyId: id, gracePeriod })).secret);
    expect(await statuses(secrets)).toEqual([200, 200, 200]);
    secrets.push((await keys.rotateApiKey({ apiKeyId: id })).secret);
    expect(await statuses(secrets)).toEqual([401, 401, 401, 200]);
  });

  test("stores only the SHA-256 of its secrets, old and new", async () => {
    const { apiKey, secret } = await keys.createApiKey({ name: "k", permissions: [1] });
    const id = apiKey?.id as string;
    const rotated = await keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    const stored = [await db("api_keys").where("id", id).first(), await oldSecrets(id).first()];
    for (const text of [secret, rotated.secret]) expect(JSON.stringify(stored)).not.toContain(text);
    expect(stored.map((row) => row?.secret_sha256)).toEqual(
      [rotated.secret, secret].map((text) => createHash("sha256").update(text).digest()),
    );
  });

  test("leaves no trace of an old secret once it has expired and the hourly clean-up has come", async () => {
    const [expired, valid] = [await api.key(), await api.key()];
    for (const { id } of [expired, valid]) await keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    await oldSecrets(expired.id).update({ expires: db.fn.now() });
    await forgetExpiredSecrets(db);
    expect([await oldSecrets(expired.id), await oldSecrets(valid.id)]).toMatchObject([[], [{}]]);
    expect(await statuses([valid.secret])).toEqual([200]);
  });

  test("allows five secrets at once, and names the way out", async () => {
    const { id } = await api.key();
    const rotate = () => keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    for (let n = 0; n < 4; n += 1) await rotate();
    const message = /5 valid secrets.*rotate again after .*without grace_period/;
    await expectRefused(rotate(), Code.FailedPrecondition, message);
    await keys.rotateApiKey({ apiKeyId: id });
  });

  test.each([
    { seconds: BigInt((7 * 24 * HOUR) / 1_000), nanos: 1 },
    { seconds: -1n },
    { seconds: 0n, nanos: -1 },
  ])("refuses a grace period of %o: it is 0 to 7 days", async (wrong) => {
    const { id, secret } = await api.key();
    const call = keys.rotateApiKey({ apiKeyId: id, gracePeriod: wrong });
    await expectRefused(call, Code.InvalidArgument, "grace_period must be 0 to 7 days");
    expect(await statuses([secret])).toEqual([200]);
  });
});

test("a key revoked on one server is refused by another from the next request on, with its old secrets", async () => {
  for (let round = 0; round < 5; round += 1) {
    const { id, secret } = await api.key();
    const { secret: current } = await keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    expect(await statuses([secret, current], other)).toEqual([200, 200]);
    await api.revoke(id);
    expect(await statuses([secret, current], other)).toEqual([401, 401]);
    expect((await listed(id))?.oldSecretsExpire).toBeUndefined();
    await expectRefused(keys.rotateApiKey({ apiKeyId: id }), Code.FailedPrecondition);
  }
});

describe("the time a key was last used", () => {
  test("is listed once it was used, without a request waiting for it", async () => {
    const { id, secret } = await api.key();
    expect((await listed(id))?.lastUsed).toBeUndefined();
    await statuses([secret]);
    await expect.poll(async () => (await listed(id))?.lastUsed).toBeDefined();
  });

  test("is written once a minute, however many processes the key is used with", async () => {
    const { id } = await api.key();
    const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second));
    for (const [used, written] of [
      [0, 0],
      [59, 0],
      [60, 60],
      [30, 60],
    ] as const) {
      await recordKeyUse(db, [{ id, at: at(used) }], 60_000);
      expect((await db("api_keys").where("id", id).first())?.last_used).toEqual(at(written));
    }
  });

  test("waits for nobody who holds the key's row", async () => {
    const { id } = await api.key();
    await db.transaction(async (trx) => {
      await trx("api_keys").where("id", id).forUpdate();
      await recordKeyUse(db, [{ id, at: new Date() }], 60_000);
    });
    expect((await listed(id))?.lastUsed).toBeUndefined();
  });

  test("is written at the end, when the service stops before its turn has come", async () => {
    const { id } = await api.key();
    const use = createKeyUse(db, pino({ level: "silent" }), HOUR);
    use.note(id);
    await use.close();
    expect((await listed(id))?.lastUsed).toBeDefined();
  });
});
