import { randomBytes } from "node:crypto";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { Code } from "@connectrpc/connect";
import { expect, test } from "vitest";
import { WebhookService } from "../../../../gen/webhook/v1/webhook_pb.ts";
import { createSecretBox, webhookSecretContext } from "../../../../src/db/webhooks/secret-box.ts";
import { forgetExpiredSecrets, newSealedSecret } from "../../../../src/db/webhooks/webhook-secrets.ts";
import { failure } from "../../../support/failure.ts";
import { ONLY, useApi } from "../../../support/test-api.ts";

const HOUR = 3_600_000;
const api = await useApi();
const webhooks = api.client(WebhookService);

const rowOf = (id: bigint) => api.context.db("webhooks").where({ id }).first();

test("rotating makes a new secret, and the one before counts for 24 hours more", async () => {
  const webhookId = await api.register();
  const before = await webhooks.getWebhookSecret({ webhookId });
  expect(before.secrets).toEqual([expect.objectContaining({ secret: before.secret })]);
  expect(before.secrets[0]?.expires).toBeUndefined();

  const rotated = await webhooks.rotateWebhookSecret({ webhookId });
  const now = Date.now();
  expect(rotated.secret).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  expect(rotated.secret).not.toBe(before.secret);
  expect(rotated.secrets.map(({ secret }) => secret)).toEqual([rotated.secret, before.secret]);
  const [newest, old] = rotated.secrets;
  expect(newest?.expires).toBeUndefined();
  const expires = old?.expires && timestampDate(old.expires).getTime();
  expect(Math.abs((expires as number) - (now + 24 * HOUR))).toBeLessThan(60_000);

  const read = await webhooks.getWebhookSecret({ webhookId });
  expect(read.secret).toBe(rotated.secret);
  expect(read.secrets).toEqual(rotated.secrets);
});

test("rotating can revoke the old secrets at once, of which one has leaked: the new one signs alone", async () => {
  const webhookId = await api.register();
  for (let n = 0; n < 4; n += 1) await webhooks.rotateWebhookSecret({ webhookId });
  const before = await webhooks.getWebhookSecret({ webhookId });
  const rotated = await webhooks.rotateWebhookSecret({ webhookId, revokeOldSecrets: true });
  expect(rotated.secrets).toEqual([expect.objectContaining({ secret: rotated.secret })]);
  expect(rotated.secrets[0]?.expires).toBeUndefined();
  expect(before.secrets.map(({ secret }) => secret)).not.toContain(rotated.secret);
  expect((await webhooks.getWebhookSecret({ webhookId })).secrets).toHaveLength(1);
  expect((await rowOf(webhookId))?.old_secrets).toEqual([]);
});

test("secrets are sealed at rest, the newest as the old ones", async () => {
  const webhookId = await api.register();
  const old = (await webhooks.getWebhookSecret({ webhookId })).secret;
  const newest = (await webhooks.rotateWebhookSecret({ webhookId })).secret;
  const row = await rowOf(webhookId);
  const stored: [string, Buffer | undefined][] = [
    [newest, row?.secret],
    [old, row?.old_secrets[0]],
  ];
  for (const [secret, sealed] of stored) {
    const bytes = Buffer.from(secret.slice("whsec_".length), "base64");
    expect(sealed?.includes(bytes)).toBe(false);
    expect(sealed?.includes(secret)).toBe(false);
    expect(api.context.secrets.open(sealed as Buffer, webhookSecretContext(webhookId))).toEqual(bytes);
  }
});

test("five secrets may be valid at once; a sixth is refused until the oldest has expired", async () => {
  const webhookId = await api.register();
  for (let n = 0; n < 4; n += 1) await webhooks.rotateWebhookSecret({ webhookId });
  const { secrets } = await webhooks.getWebhookSecret({ webhookId });
  expect(new Set(secrets.map(({ secret }) => secret)).size).toBe(5);
  const refused = await failure(webhooks.rotateWebhookSecret({ webhookId }));
  const oldest = secrets.at(-1)?.expires;
  expect(refused?.code).toBe(Code.FailedPrecondition);
  expect(refused?.rawMessage).toContain("5 valid signing secrets");
  expect(refused?.rawMessage).toContain(oldest && timestampDate(oldest).toISOString().slice(0, 19));
  expect((await webhooks.getWebhookSecret({ webhookId })).secrets).toEqual(secrets);

  await api.context.db.raw(
    "update webhooks set old_secrets_expire = old_secrets_expire[1:3] || now() - interval '1 second' where id = ?",
    [String(webhookId)],
  );
  expect((await webhooks.getWebhookSecret({ webhookId })).secrets).toHaveLength(4);
  const rotated = await webhooks.rotateWebhookSecret({ webhookId });
  expect(rotated.secrets).toHaveLength(5);
  expect(rotated.secrets.slice(1, 4)).not.toContainEqual(secrets.at(-1));
  expect((await rowOf(webhookId))?.old_secrets).toHaveLength(4);
});

test("of many rotations at once each counts, and no more than five secrets come of them", async () => {
  const webhookId = await api.register();
  const calls = Array.from({ length: 10 }, () => failure(webhooks.rotateWebhookSecret({ webhookId })));
  const outcomes = await Promise.all(calls);
  expect(outcomes.filter((outcome) => outcome === undefined)).toHaveLength(4);
  expect(outcomes.filter((outcome) => outcome?.code === Code.FailedPrecondition)).toHaveLength(6);
  expect((await webhooks.getWebhookSecret({ webhookId })).secrets).toHaveLength(5);
});

test("rotating wants Write_Administrative_Data and a webhook that is registered", async () => {
  const webhookId = await api.register();
  const reader = api.client(WebhookService, (await api.key({ permissions: ONLY.read })).secret);
  expect((await failure(reader.rotateWebhookSecret({ webhookId })))?.code).toBe(Code.PermissionDenied);
  expect((await failure(webhooks.rotateWebhookSecret({ webhookId: 4711n })))?.code).toBe(Code.NotFound);
  await webhooks.deleteWebhook({ webhookId });
  expect((await failure(webhooks.rotateWebhookSecret({ webhookId })))?.code).toBe(Code.NotFound);
});

test("a secret that opens with no key is told so, and rotating mends its webhook", async () => {
  const webhookId = await api.register();
  const lost = newSealedSecret(createSecretBox(randomBytes(32)), webhookId);
  await api.context.db.raw("update webhooks set secret = ? where id = ?", [lost, String(webhookId)]);
  const refused = await failure(webhooks.getWebhookSecret({ webhookId }));
  expect(refused?.code).toBe(Code.FailedPrecondition);
  expect(refused?.rawMessage).toContain("SECRET_KEY_PREVIOUS");
  const rotated = await webhooks.rotateWebhookSecret({ webhookId });
  expect(rotated.secrets.map(({ secret }) => secret)).toEqual([rotated.secret]);
});

test("expired secrets are forgotten by the hourly clean-up, and what is rotated meanwhile keeps all that is valid", async () => {
  const { db } = api.context;
  const ids = await Promise.all(Array.from({ length: 10 }, () => api.register()));
  for (const webhookId of ids) await webhooks.rotateWebhookSecret({ webhookId });
  const untouched = await webhooks.getWebhookSecret({ webhookId: ids[9] as bigint });
  await db.raw(
    "update webhooks set old_secrets_expire = array[now() - interval '1 second'] where id = any(?::bigint[])",
    [ids.slice(0, 9).map(String)],
  );
  await Promise.all([
    forgetExpiredSecrets(db),
    ...ids.slice(5, 9).map((webhookId) => webhooks.rotateWebhookSecret({ webhookId })),
    forgetExpiredSecrets(db),
  ]);
  await forgetExpiredSecrets(db);
  const left = await Promise.all(ids.map(async (id) => (await rowOf(id))?.old_secrets.length));
  expect(left).toEqual([0, 0, 0, 0, 0, 1, 1, 1, 1, 1]);
  expect((await webhooks.getWebhookSecret({ webhookId: ids[9] as bigint })).secrets).toEqual(
    untouched.secrets,
  );
});
