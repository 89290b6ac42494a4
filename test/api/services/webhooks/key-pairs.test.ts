import { createPrivateKey, createPublicKey, randomBytes } from "node:crypto";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { createSecretBox, keyPairContext } from "../../../../src/db/webhooks/secret-box.ts";
import { forgetExpiredSecrets } from "../../../../src/db/webhooks/webhook-secrets.ts";
import { failure } from "../../../support/failure.ts";
import { ONLY, useApi } from "../../../support/test-api.ts";

const HOUR = 3_600_000;
const api = await useApi();
const webhooks = api.client(WebhookService);

const rowOf = (id: bigint) => api.context.db("webhooks").where({ id }).first();
const readPairs = async (webhookId: bigint) => (await webhooks.getWebhookKeyPairs({ webhookId })).keyPairs;
const expirePair = (webhookId: bigint, position: number) =>
  api.context.db.raw(
    `update webhooks set key_pairs_expire[${position}] = now() - interval '1 second' where id = ?`,
    [String(webhookId)],
  );

test("a webhook has no key pair until one is made, which keys that may read see, and none after they are deleted", async () => {
  const webhookId = await api.register();
  expect(await readPairs(webhookId)).toEqual([]);
  const { keyPairs } = await webhooks.rotateWebhookKeyPair({ webhookId });
  expect(keyPairs).toEqual([expect.objectContaining({ publicKey: expect.stringMatching(/^whpk_.{43}=$/) })]);
  expect(keyPairs[0]?.expires).toBeUndefined();
  const reader = api.client(WebhookService, (await api.key({ permissions: ONLY.read })).secret);
  expect((await reader.getWebhookKeyPairs({ webhookId })).keyPairs).toEqual(keyPairs);
  expect((await failure(reader.rotateWebhookKeyPair({ webhookId })))?.code).toBe(Code.PermissionDenied);
  expect((await failure(reader.deleteWebhookKeyPairs({ webhookId })))?.code).toBe(Code.PermissionDenied);
  await webhooks.deleteWebhookKeyPairs({ webhookId });
  expect(await readPairs(webhookId)).toEqual([]);
  expect(await rowOf(webhookId)).toMatchObject({ key_pairs: [], key_pairs_expire: [] });
});

test("rotating makes a new key pair beside the old one, which signs for 24 hours more unless it is revoked", async () => {
  const webhookId = await api.register();
  const [first] = (await webhooks.rotateWebhookKeyPair({ webhookId })).keyPairs;
  const rotated = (await webhooks.rotateWebhookKeyPair({ webhookId })).keyPairs;
  expect(rotated.map(({ publicKey }) => publicKey)).toEqual([expect.any(String), first?.publicKey]);
  expect(rotated[0]?.publicKey).not.toBe(first?.publicKey);
  expect(rotated[0]?.expires).toBeUndefined();
  const expires = timestampDate(rotated[1]?.expires as never).getTime();
  expect(Math.abs(expires - (Date.now() + 24 * HOUR))).toBeLessThan(60_000);
  expect(await readPairs(webhookId)).toEqual(rotated);
  const alone = (await webhooks.rotateWebhookKeyPair({ webhookId, revokeOldKeyPairs: true })).keyPairs;
  expect(alone).toHaveLength(1);
  expect(await readPairs(webhookId)).toEqual(alone);
});

test("private keys are sealed at rest for their webhook, and belong to the public keys", async () => {
  const webhookId = await api.register();
  const [pair] = (await webhooks.rotateWebhookKeyPair({ webhookId })).keyPairs;
  const [sealed] = (await rowOf(webhookId))?.key_pairs ?? [];
  const opened = api.context.secrets.open(sealed as Buffer, keyPairContext(webhookId));
  const privateKey = createPrivateKey({ key: opened, format: "der", type: "pkcs8" });
  const { d = "" } = privateKey.export({ format: "jwk" });
  expect(sealed?.includes(Buffer.from(d, "base64url"))).toBe(false);
  const raw = createPublicKey(privateKey).export({ format: "der", type: "spki" }).subarray(-32);
  expect(pair?.publicKey).toBe(`whpk_${raw.toString("base64")}`);
  expect(() => api.context.secrets.open(sealed as Buffer, keyPairContext(webhookId + 1n))).toThrow();
});

test("five key pairs may be valid at once; a sixth is refused until the oldest has expired", async () => {
  const webhookId = await api.register();
  for (let n = 0; n < 5; n += 1) await webhooks.rotateWebhookKeyPair({ webhookId });
  const refused = await failure(webhooks.rotateWebhookKeyPair({ webhookId }));
  expect(refused?.code).toBe(Code.FailedPrecondition);
  expect(refused?.rawMessage).toContain("5 valid key pairs");
  await expirePair(webhookId, 5);
  expect(await readPairs(webhookId)).toHaveLength(4);
  expect((await webhooks.rotateWebhookKeyPair({ webhookId })).keyPairs).toHaveLength(5);
});

test("a key pair that no key decrypts is reported, and rotating or deleting repairs its webhook", async () => {
  const [rotated, deleted] = [await api.register(), await api.register()];
  for (const webhookId of [rotated, deleted]) {
    await webhooks.rotateWebhookKeyPair({ webhookId });
    const lost = createSecretBox(randomBytes(32)).seal("lost", keyPairContext(webhookId));
    await api.context.db.raw("update webhooks set key_pairs = array[?::bytea] where id = ?", [
      lost,
      String(webhookId),
    ]);
    const refused = await failure(webhooks.getWebhookKeyPairs({ webhookId }));
    expect(refused?.code).toBe(Code.FailedPrecondition);
    expect(refused?.rawMessage).toContain("RotateWebhookKeyPair");
  }
  expect((await webhooks.rotateWebhookKeyPair({ webhookId: rotated })).keyPairs).toHaveLength(1);
  await webhooks.deleteWebhookKeyPairs({ webhookId: deleted });
  expect(await readPairs(deleted)).toEqual([]);
});

test("expired key pairs are deleted by the hourly clean-up, and valid ones kept", async () => {
  const [expired, valid] = [await api.register(), await api.register()];
  for (const webhookId of [expired, valid])
    for (let n = 0; n < 3; n += 1) await webhooks.rotateWebhookKeyPair({ webhookId });
  await expirePair(expired, 3);
  const before = await readPairs(expired);
  await forgetExpiredSecrets(api.context.db);
  expect((await rowOf(expired))?.key_pairs).toHaveLength(2);
  expect((await rowOf(expired))?.key_pairs_expire).toEqual([null, expect.any(Date)]);
  expect(await readPairs(expired)).toEqual(before);
  expect((await rowOf(valid))?.key_pairs).toHaveLength(3);
});

test("a webhook that does not exist, or was deleted, has no key pairs to read or change", async () => {
  const webhookId = await api.register();
  await webhooks.deleteWebhook({ webhookId });
  for (const id of [webhookId, 4_711n]) {
    expect((await failure(webhooks.getWebhookKeyPairs({ webhookId: id })))?.code).toBe(Code.NotFound);
    expect((await failure(webhooks.rotateWebhookKeyPair({ webhookId: id })))?.code).toBe(Code.NotFound);
    expect((await failure(webhooks.deleteWebhookKeyPairs({ webhookId: id })))?.code).toBe(Code.NotFound);
  }
});
