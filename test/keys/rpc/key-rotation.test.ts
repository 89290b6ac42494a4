import { createHash } from "node:crypto";
import { Code } from "@connectrpc/connect";
import pino from "pino";
import { afterAll, describe, expect, onTestFinished, test, vi } from "vitest";
import { recordKeyUse } from "../../../src/keys/api-keys.ts";
import { createKeyUse } from "../../../src/keys/gate/key-use.ts";
import { forgetExpiredKeySecrets } from "../../../src/keys/key-rotation.ts";
import { expectWithin, timed } from "../../support/database-time.ts";
import { expectRefused } from "../../support/refusals.ts";
import { startTestApi, type TestApi, useApi } from "../../support/test-api.ts";

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
    // Another rotation keeps the promise made to the first secret; one without a time ends all.
    const secrets = [secret, rotated.secret];
    secrets.push((await keys.rotateApiKey({ apiKeyId: id, gracePeriod })).secret);
    for (const server of [api, other]) expect(await statuses(secrets, server)).toEqual([200, 200, 200]);
    await oldSecrets(id).update({ expires: db.raw("now() - interval '1 second'") });
    expect(await statuses(secrets)).toEqual([401, 401, 200]);
    expect((await listed(id))?.oldSecretsExpire).toBeUndefined();
    await keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    secrets.push((await keys.rotateApiKey({ apiKeyId: id })).secret);
    expect(await statuses(secrets)).toEqual([401, 401, 401, 200]);
  });

  test("stores only the SHA-256 of secrets, and the hourly clean-up deletes expired ones", async () => {
    const { apiKey, secret } = await keys.createApiKey({ name: "k", permissions: [1] });
    const id = apiKey?.id as string;
    const rotated = await keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    await forgetExpiredKeySecrets(db);
    const stored = [await db("api_keys").where("id", id).first(), await oldSecrets(id).first()];
    for (const text of [secret, rotated.secret]) expect(JSON.stringify(stored)).not.toContain(text);
    expect(stored.map((row) => row?.secret_sha256)).toEqual(
      [rotated.secret, secret].map((text) => createHash("sha256").update(text).digest()),
    );
    await oldSecrets(id).update({ expires: db.fn.now() });
    await forgetExpiredKeySecrets(db);
    expect(await oldSecrets(id)).toEqual([]);
  });

  test("allows five secrets at once, and names the way out", async () => {
    const { id } = await api.key();
    const rotate = () => keys.rotateApiKey({ apiKeyId: id, gracePeriod });
    for (let n = 0; n < 4; n += 1) await rotate();
    const message = /5 valid secrets.*rotate again after .*without grace_period/;
    await expectRefused(rotate(), Code.FailedPrecondition, message);
    await keys.rotateApiKey({ apiKeyId: id });
  });

  test("refuses a grace period that is not 0 to 7 days", async () => {
    const { id, secret } = await api.key();
    for (const wrong of [{ seconds: 604_800n, nanos: 1 }, { seconds: -1n }, { seconds: 0n, nanos: -1 }]) {
      const call = keys.rotateApiKey({ apiKeyId: id, gracePeriod: wrong });
      await expectRefused(call, Code.InvalidArgument, "grace_period must be 0 to 7 days");
    }
    expect(await statuses([secret])).toEqual([200]);
  });
});

test("a key revoked on one server is refused by another from the next request on, with its old secrets", async () => {
  const { id, secret } = await api.key();
  const { secret: current } = await keys.rotateApiKey({ apiKeyId: id, gracePeriod });
  expect(await statuses([secret, current], other)).toEqual([200, 200]);
  await api.revoke(id);
  expect(await statuses([secret, current], other)).toEqual([401, 401]);
  expect((await listed(id))?.oldSecretsExpire).toBeUndefined();
  await expectRefused(keys.rotateApiKey({ apiKeyId: id }), Code.FailedPrecondition);
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
    vi.useFakeTimers({ toFake: ["Date"] });
    onTestFinished(() => void vi.useRealTimers());
    const written: unknown[] = [];
    const read = async () => written.push((await db("api_keys").where("id", id).first())?.last_used);
    const use = createKeyUse(db, pino({ level: "silent" }), HOUR);
    for (const second of [0, 59, 60]) {
      vi.setSystemTime(at(second));
      use.note(id);
      await use.close();
      await read();
    }
    // Of another process, later.
    await recordKeyUse(db, [{ id, at: at(30) }], 60_000);
    await read();
    expect(written).toEqual([at(0), at(0), at(60), at(60)]);
  });

  test("waits for nobody who holds the key's row, and is written later, or when the service stops", async () => {
    const { id } = await api.key();
    const use = createKeyUse(db, pino({ level: "silent" }), 1);
    await db.transaction(async (trx) => {
      await trx("api_keys").where("id", id).forUpdate();
      const held = await recordKeyUse(db, [{ id, at: new Date() }], 60_000);
      expect(held).toEqual([id]);
      use.note(id);
      await use.close();
    });
    expect((await listed(id))?.lastUsed).toBeUndefined();
    await use.close();
    expect((await listed(id))?.lastUsed).toBeDefined();
  });
});
