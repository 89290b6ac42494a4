import { createPrivateKey, createPublicKey, randomBytes } from "node:crypto";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { createSecretBox, keyPairContext } from "../../../../src/db/webhooks/secret-box.ts";
import { forgetExpiredSecrets } from "../../../../src/db/webhooks/webhook-secrets.ts";
import { expectWithin, timed } from "../../../support/database-time.ts";
import { expectRefused } from "../../../support/refusals.ts";
import { useApi } from "../../../support/test-api.ts";

const DAY = 24 * 3_600_000;
const api = await useApi();
const { db } = api.context;
const { webhooks } = api;

const rowOf = (id: bigint) => db("webhooks").where({ id }).first();
const readPairs = async (webhookId: bigint) => (await webhooks.getWebhookKeyPairs({ webhookId })).keyPairs;
const rotate = async (webhookId: bigint, revokeOldKeyPairs = false) =>
  (await webhooks.rotateWebhookKeyPair({ webhookId, revokeOldKeyPairs })).keyPairs;
const expirePair = (webhookId: bigint, position: number) =>
  db.raw(`update webhooks set key_pairs_expire[${position}] = now() - interval '1 second' where id = ?`, [
    String(webhookId),
  ]);

test("a webhook has no key pair until one is made, and none after they are deleted", async () => {
  const webhookId = await api.register();
  expect(await readPairs(webhookId)).toEqual([]);
  const keyPairs = await rotate(webhookId);
  expect(keyPairs).toMatchObject([{ publicKey: expect.stringMatching(/^whpk_.{43}=$/) }]);
  expect(keyPairs[0]?.expires).toBeUndefined();
  expect(await readPairs(webhookId)).toEqual(keyPairs);
  await webhooks.deleteWebhookKeyPairs({ webhookId });
  expect(await readPairs(webhookId)).toEqual([]);
  expect(await rowOf(webhookId)).toMatchObject({ key_pairs: [], key_pairs_expire: [] });
});

test("rotating makes a new key pair beside the old one, which signs for 24 hours more unless it is revoked", async () => {
  const webhookId = await api.register();
  const [first] = await rotate(webhookId);
  const [rotated, span] = await timed(db, () => rotate(webhookId));
  expect(rotated.map(({ publicKey }) => publicKey)).toEqual([expect.any(String), first?.publicKey]);
  expect(rotated[0]?.publicKey).not.toBe(first?.publicKey);
  expect(rotated[0]?.expires).toBeUndefined();
  expectWithin(span, rotated[1]?.expires, DAY);
  expect(await readPairs(webhookId)).toEqual(rotated);
  const alone = await rotate(webhookId, true);
  expect(alone).toHaveLength(1);
  expect(await readPairs(webhookId)).toEqual(alone);
});

test("private keys are sealed at rest for their webhook, and belong to the public keys", async () => {
  const webhookId = await api.register();
  const [pair] = await rotate(webhookId);
  const [sealed] = ((await rowOf(webhookId))?.key_pairs ?? []) as [Buffer];
  const opened = api.context.secrets.open(sealed, keyPairContext(webhookId));
  const privateKey = createPrivateKey({ key: opened, format: "der", type: "pkcs8" });
  const { d = "" } = privateKey.export({ format: "jwk" });
  expect(sealed.includes(Buffer.from(d, "base64url"))).toBe(false);
  const raw = createPublicKey(privateKey).export({ format: "der", type: "spki" }).subarray(-32);
  expect(pair?.publicKey).toBe(`whpk_${raw.toString("base64")}`);
  expect(() => api.context.secrets.open(sealed, keyPairContext(webhookId + 1n))).toThrow();
});

test("five key pairs may be valid at once; a sixth is refused until the oldest has expired", async () => {
  const webhookId = await api.register();
  for (let n = 0; n < 5; n += 1) await rotate(webhookId);
  await expectRefused(rotate(webhookId), Code.FailedPrecondition, "5 valid key pairs");
  await expirePair(webhookId, 5);
  expect(await readPairs(webhookId)).toHaveLength(4);
  expect(await rotate(webhookId)).toHaveLength(5);
});

test.each([
  ["rotating", (webhookId: bigint) => rotate(webhookId), 1],
  ["deleting", (webhookId: bigint) => webhooks.deleteWebhookKeyPairs({ webhookId }), 0],
])("a key pair that no key decrypts is reported, and %s repairs its webhook", async (_, repair, left) => {
  const webhookId = await api.register();
  await rotate(webhookId);
  const lost = createSecretBox(randomBytes(32)).seal("lost", keyPairContext(webhookId));
  await db("webhooks").where({ id: webhookId }).update("key_pairs", [lost]);
  await expectRefused(readPairs(webhookId), Code.FailedPrecondition, "RotateWebhookKeyPair");
  await repair(webhookId);
  expect(await readPairs(webhookId)).toHaveLength(left);
});

test("expired key pairs are deleted by the hourly clean-up, and valid ones kept", async () => {
  const [expired, valid] = [await api.register(), await api.register()];
  for (const webhookId of [expired, valid]) for (let n = 0; n < 3; n += 1) await rotate(webhookId);
  await expirePair(expired, 3);
  const before = await readPairs(expired);
  await forgetExpiredSecrets(db);
  expect((await rowOf(expired))?.key_pairs).toHaveLength(2);
  expect((await rowOf(expired))?.key_pairs_expire).toEqual([null, expect.any(Date)]);
  expect(await readPairs(expired)).toEqual(before);
  expect((await rowOf(valid))?.key_pairs).toHaveLength(3);
});
