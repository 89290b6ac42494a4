import { randomBytes } from "node:crypto";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { createSecretBox, webhookSecretContext } from "../../../../src/db/webhooks/secret-box.ts";
import { forgetExpiredSecrets, newSealedSecret } from "../../../../src/db/webhooks/webhook-secrets.ts";
import { expectWithin, timed } from "../../../support/database-time.ts";
import { failure } from "../../../support/failure.ts";
import { expectRefused } from "../../../support/refusals.ts";
import { useApi } from "../../../support/test-api.ts";

const DAY = 24 * 3_600_000;
const api = await useApi();
const { db } = api.context;
const { webhooks } = api;

const rowOf = (id: bigint) => db("webhooks").where({ id }).first();
const read = (webhookId: bigint) => webhooks.getWebhookSecret({ webhookId });
const rotate = (webhookId: bigint, revokeOldSecrets = false) =>
  webhooks.rotateWebhookSecret({ webhookId, revokeOldSecrets });

test("rotating makes a new secret, and the one before counts for 24 hours more unless it is revoked", async () => {
  const webhookId = await api.register();
  const before = await read(webhookId);
  expect(before.secrets.map(({ secret, expires }) => [secret, expires])).toEqual([
    [before.secret, undefined],
  ]);
  const [rotated, span] = await timed(db, () => rotate(webhookId));
  expect(rotated.secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  expect(rotated.secret).not.toBe(before.secret);
  expect(rotated.secrets.map(({ secret }) => secret)).toEqual([rotated.secret, before.secret]);
  expect(rotated.secrets[0]?.expires).toBeUndefined();
  expectWithin(span, rotated.secrets[1]?.expires, DAY);
  expect(await read(webhookId)).toMatchObject({ secret: rotated.secret, secrets: rotated.secrets });
  const alone = await rotate(webhookId, true);
  expect(alone.secrets.map(({ secret }) => secret)).toEqual([alone.secret]);
  expect((await read(webhookId)).secrets).toEqual(alone.secrets);
  expect((await rowOf(webhookId))?.old_secrets).toEqual([]);
});

test("secrets are sealed at rest, the newest as the old ones", async () => {
  const webhookId = await api.register();
  const old = (await read(webhookId)).secret;
  const newest = (await rotate(webhookId)).secret;
  const row = await rowOf(webhookId);
  const stored: [string, Buffer][] = [
    [newest, row?.secret as Buffer],
    [old, row?.old_secrets[0] as Buffer],
  ];
  for (const [secret, sealed] of stored) {
    const bytes = Buffer.from(secret.slice("whsec_".length), "base64");
    expect([sealed.includes(bytes), sealed.includes(secret)]).toEqual([false, false]);
    expect(api.context.secrets.open(sealed, webhookSecretContext(webhookId))).toEqual(bytes);
  }
});

test("five secrets may be valid at once; a sixth is refused until the oldest has expired", async () => {
  const webhookId = await api.register();
  for (let n = 0; n < 4; n += 1) await rotate(webhookId);
  const { secrets } = await read(webhookId);
  expect(new Set(secrets.map(({ secret }) => secret)).size).toBe(5);
  const oldest = secrets.at(-1)?.expires;
  const until = oldest && timestampDate(oldest).toISOString().slice(0, 19);
  await expectRefused(
    rotate(webhookId),
    Code.FailedPrecondition,
    new RegExp(`5 valid signing secrets.*${until}`),
  );
  expect((await read(webhookId)).secrets).toEqual(secrets);

  await db.raw(
    "update webhooks set old_secrets_expire = old_secrets_expire[1:3] || now() - interval '1 second' where id = ?",
    [String(webhookId)],
  );
  expect((await read(webhookId)).secrets).toHaveLength(4);
  const rotated = await rotate(webhookId);
  expect(rotated.secrets).toHaveLength(5);
  expect(rotated.secrets.slice(1, 4)).not.toContainEqual(secrets.at(-1));
  expect((await rowOf(webhookId))?.old_secrets).toHaveLength(4);
});

test("of many rotations at once each counts, and no more than five secrets come of them", async () => {
  const webhookId = await api.register();
  const outcomes = await Promise.all(Array.from({ length: 10 }, () => failure(rotate(webhookId))));
  expect(outcomes.map((outcome) => outcome?.code ?? 0).sort()).toEqual([
    ...Array(4).fill(0),
    ...Array(6).fill(Code.FailedPrecondition),
  ]);
  expect((await read(webhookId)).secrets).toHaveLength(5);
});

test("a secret that opens with no key is told so, and rotating mends its webhook", async () => {
  const webhookId = await api.register();
  const lost = newSealedSecret(createSecretBox(randomBytes(32)), webhookId);
  await db("webhooks").where({ id: webhookId }).update("secret", lost);
  await expectRefused(read(webhookId), Code.FailedPrecondition, "SECRET_KEY_PREVIOUS");
  const rotated = await rotate(webhookId);
  expect(rotated.secrets.map(({ secret }) => secret)).toEqual([rotated.secret]);
});

test("expired secrets are forgotten by the hourly clean-up, and what is rotated meanwhile keeps all that is valid", async () => {
  const ids = await Promise.all(Array.from({ length: 10 }, () => api.register()));
  for (const webhookId of ids) await rotate(webhookId);
  const kept = ids.pop() as bigint;
  const untouched = (await read(kept)).secrets;
  await db.raw(
    "update webhooks set old_secrets_expire = array[now() - interval '1 second'] where id = any(?::bigint[])",
    [ids.map(String)],
  );
  await Promise.all([
    forgetExpiredSecrets(db),
    ...ids.slice(5).map((webhookId) => rotate(webhookId)),
    forgetExpiredSecrets(db),
  ]);
  await forgetExpiredSecrets(db);
  const left = await Promise.all(ids.map(async (id) => (await rowOf(id))?.old_secrets.length));
  expect(left).toEqual([0, 0, 0, 0, 0, 1, 1, 1, 1]);
  expect((await read(kept)).secrets).toEqual(untouched);
});
