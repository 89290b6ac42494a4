import { createPrivateKey, createPublicKey, randomBytes } from "node:crypto";
import { type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { Code, createClient } from "@connectrpc/connect";
import { describe, expect, test } from "vitest";
import { AuditService } from "../../../gen/webhook/v1/audit_pb.ts";
import { EndpointService } from "../../../gen/webhook/v1/endpoint_pb.ts";
import { createSecretBox, keyPairContext, webhookSecretContext } from "../../../src/webhooks/secret-box.ts";
import { forgetExpiredSecrets, newSealedSecret } from "../../../src/webhooks/webhook-secrets.ts";
import { connect } from "../../support/clients.ts";
import { expectWithin, timed } from "../../support/database-time.ts";
import { failure } from "../../support/failure.ts";
import { expectRefused } from "../../support/refusals.ts";
import { useApi } from "../../support/test-api.ts";

const DAY = 24 * 3_600_000;
const api = await useApi();
const { db } = api.context;
const { webhooks } = api;
const audit = createClient(AuditService, connect(api));
const endpoints = createClient(EndpointService, connect(api));

const rowOf = (id: bigint) => db("webhooks").where({ id }).first();
const readPairs = async (webhookId: bigint) => (await webhooks.getWebhookKeyPairs({ webhookId })).keyPairs;
/** What both kinds have. */
const textOf = (each: { secret?: string; publicKey?: string; expires?: Timestamp | undefined }) => ({
  text: each.secret ?? each.publicKey,
  expires: each.expires,
});

const secrets = {
  what: "signing secrets",
  form: /^whsec_[A-Za-z0-9+/]{43}=$/,
  column: "old_secrets_expire" as const,
  read: async (webhookId: bigint) => (await webhooks.getWebhookSecret({ webhookId })).secrets.map(textOf),
  rotate: async (webhookId: bigint, revokeOldSecrets = false) =>
    (await webhooks.rotateWebhookSecret({ webhookId, revokeOldSecrets })).secrets.map(textOf),
};
const pairs = {
  what: "key pairs",
  form: /^whpk_.{43}=$/,
  column: "key_pairs_expire" as const,
  read: async (webhookId: bigint) => (await readPairs(webhookId)).map(textOf),
  rotate: async (webhookId: bigint, revokeOldKeyPairs = false) =>
    (await webhooks.rotateWebhookKeyPair({ webhookId, revokeOldKeyPairs })).keyPairs.map(textOf),
};

describe.each([secrets, pairs])("$what", ({ what, form, column, read, rotate }) => {
  /** The oldest one expires. */
  const expireOldest = (webhookId: bigint) =>
    db.raw(
      `update webhooks set ${column}[cardinality(${column})] = now() - interval '1 second' where id = ?`,
      [String(webhookId)],
    );

  test("are rotated: the old one is valid for 24 hours more unless it is revoked", async () => {
    const webhookId = await api.register();
    const [first, ...none] = await rotate(webhookId, true);
    expect([first, none]).toEqual([{ text: expect.stringMatching(form), expires: undefined }, []]);
    const [rotated, span] = await timed(db, () => rotate(webhookId));
    const newest = { text: expect.stringMatching(form), expires: undefined };
    expect(rotated).toEqual([newest, { text: first?.text, expires: expect.anything() }]);
    expect(rotated[0]?.text).not.toBe(first?.text);
    expectWithin(span, rotated[1]?.expires, DAY);
    expect(await read(webhookId)).toEqual(rotated);
    const alone = await rotate(webhookId, true);
    expect([alone.length, await read(webhookId)]).toEqual([1, alone]);
  });

  test("are at most five at once, also of many rotations at once, until the oldest has expired", async () => {
    const webhookId = await api.register();
    await rotate(webhookId, true);
    const outcomes = await Promise.all(Array.from({ length: 10 }, () => failure(rotate(webhookId))));
    expect(outcomes.map((outcome) => outcome?.code ?? 0).sort()).toEqual([
      ...Array(4).fill(0),
      ...Array(6).fill(Code.FailedPrecondition),
    ]);
    const five = await read(webhookId);
    expect(new Set(five.map(({ text }) => text)).size).toBe(5);
    const until = timestampDate(five[4]?.expires as Timestamp).toISOString();
    const message = new RegExp(`5 valid ${what}.*${until.slice(0, 19)}`);
    await expectRefused(rotate(webhookId), Code.FailedPrecondition, message);
    await expireOldest(webhookId);
    expect(await read(webhookId)).toEqual(five.slice(0, 4));
    expect(await rotate(webhookId)).toHaveLength(5);
  });

  test("are deleted by the hourly clean-up once they have expired, and rotations meanwhile lose none", async () => {
    const ids = await Promise.all(Array.from({ length: 8 }, () => api.register()));
    for (const webhookId of ids) {
      await rotate(webhookId, true);
      await rotate(webhookId);
    }
    const [kept, ...expired] = ids as [bigint, ...bigint[]];
    const before = await read(kept);
    for (const webhookId of expired) await expireOldest(webhookId);
    await Promise.all([
      forgetExpiredSecrets(db),
      ...expired.slice(4).map((webhookId) => rotate(webhookId)),
      forgetExpiredSecrets(db),
    ]);
    await forgetExpiredSecrets(db);
    const stored = async (webhookId: bigint) => (await rowOf(webhookId))?.[column].filter(Boolean).length;
    expect(await Promise.all(expired.map(stored))).toEqual([0, 0, 0, 0, 1, 1, 1]);
    expect([await stored(kept), await read(kept)]).toEqual([1, before]);
  });
});

const LOST = createSecretBox(randomBytes(32));
const lostSecret = (id: bigint) => ({ secret: newSealedSecret(LOST, id) });
const lostPair = (id: bigint) => ({ key_pairs: [LOST.seal("lost", keyPairContext(id))] });
const rotateSecret = (webhookId: bigint) => webhooks.rotateWebhookSecret({ webhookId });
const rotatePair = (webhookId: bigint) => webhooks.rotateWebhookKeyPair({ webhookId });
const deletePairs = (webhookId: bigint) => webhooks.deleteWebhookKeyPairs({ webhookId });

test.each([
  ["secret", "rotating", lostSecret, secrets.read, rotateSecret, "SECRET_KEY_PREVIOUS", 1],
  ["key pair", "rotating", lostPair, pairs.read, rotatePair, "RotateWebhookKeyPair", 1],
  ["key pair", "deleting", lostPair, pairs.read, deletePairs, "RotateWebhookKeyPair", 0],
] as const)(
  "a %s that no key decrypts is reported, and %s repairs its webhook",
  async (_what, _how, lost, read, repair, message, left) => {
    const webhookId = await api.register();
    await rotatePair(webhookId);
    await db("webhooks").where({ id: webhookId }).update(lost(webhookId));
    await expectRefused(read(webhookId), Code.FailedPrecondition, message);
    await repair(webhookId);
    expect(await read(webhookId)).toHaveLength(left);
  },
);

test("secrets are sealed at rest, the newest and the old ones", async () => {
  const webhookId = await api.register();
  const [newest, old] = await secrets.rotate(webhookId);
  const row = await rowOf(webhookId);
  for (const [secret = "", sealed] of [
    [newest?.text, row?.secret],
    [old?.text, row?.old_secrets[0]],
  ] as [string | undefined, Buffer][]) {
    const bytes = Buffer.from(secret.slice("whsec_".length), "base64");
    expect([sealed.includes(bytes), sealed.includes(secret)]).toEqual([false, false]);
    expect(api.context.secrets.open(sealed, webhookSecretContext(webhookId))).toEqual(bytes);
  }
});

test("a webhook has no key pair until one is made, and none after they are deleted; private keys are sealed", async () => {
  const webhookId = await api.register();
  expect(await readPairs(webhookId)).toEqual([]);
  const { keyPairs } = await rotatePair(webhookId);
  const [sealed] = ((await rowOf(webhookId))?.key_pairs ?? []) as [Buffer];
  const opened = api.context.secrets.open(sealed, keyPairContext(webhookId));
  const privateKey = createPrivateKey({ key: opened, format: "der", type: "pkcs8" });
  const { d = "" } = privateKey.export({ format: "jwk" });
  expect(sealed.includes(Buffer.from(d, "base64url"))).toBe(false);
  const raw = createPublicKey(privateKey).export({ format: "der", type: "spki" }).subarray(-32);
  expect(keyPairs).toMatchObject([{ publicKey: `whpk_${raw.toString("base64")}` }]);
  expect(() => api.context.secrets.open(sealed, keyPairContext(webhookId + 1n))).toThrow();
  await deletePairs(webhookId);
  expect(await readPairs(webhookId)).toEqual([]);
  expect(await rowOf(webhookId)).toMatchObject({ key_pairs: [], key_pairs_expire: [] });
});

describe("a secret of one's own", () => {
  const base64 = (bytes: number) => Buffer.alloc(bytes, 251).toString("base64");
  const own = (bytes: number) => `whsec_${base64(bytes)}`;
  const entriesOf = async (webhookId: bigint) =>
    (await audit.listAuditEntries({ targetId: String(webhookId) })).entries;

  test("signs from the creation of a webhook or an endpoint on, or from a rotation, and is audited without its value", async () => {
    const url = (name: string) => `https://receiver.example/own-${name}`;
    const { webhook, created } = await webhooks.createWebhook({
      process: 1,
      url: url("one"),
      secret: own(24),
    });
    const webhookId = webhook?.id as bigint;
    expect([created, await secrets.read(webhookId)]).toEqual([true, [{ text: own(24) }]]);
    const { endpoint } = await endpoints.createEndpoint({
      processes: [1, 2],
      url: url("two"),
      secret: own(64),
    });
    for (const { id } of endpoint?.webhooks ?? [])
      expect(await secrets.read(id)).toEqual([{ text: own(64) }]);
    const { secret } = await webhooks.rotateWebhookSecret({ webhookId, secret: own(40) });
    expect(secret).toBe(own(40));
    expect((await secrets.read(webhookId)).map(({ text }) => text)).toEqual([own(40), own(24)]);
    // A valid one that is given again signs once.
    await webhooks.rotateWebhookSecret({ webhookId, secret: own(24) });
    expect((await secrets.read(webhookId)).map(({ text }) => text)).toEqual([own(24), own(40)]);
    const entries = await entriesOf(webhookId);
    const facts = entries.flatMap(({ changes }) => changes.filter(({ field }) => field === "own_secret"));
    expect(facts).toHaveLength(3);
    const text = JSON.stringify(entries, (_name, value) =>
      typeof value === "bigint" ? String(value) : value,
    );
    for (const bytes of [24, 40, 64]) expect(text).not.toContain(base64(bytes).slice(0, 16));
  });

  test("does not replace that of a webhook that exists already, which a warning says", async () => {
    const url = "https://receiver.example/own-existing";
    const { webhook } = await webhooks.createWebhook({ process: 1, url });
    const webhookId = webhook?.id as bigint;
    const before = await secrets.read(webhookId);
    const again = await webhooks.createWebhook({ process: 1, url, secret: own(32) });
    expect(again).toMatchObject({
      created: false,
      warnings: [expect.stringContaining("RotateWebhookSecret")],
    });
    expect(await secrets.read(webhookId)).toEqual(before);
  });

  test.each([
    ["", /must be whsec_ and the base64 of 24 to 64 bytes/],
    [base64(32), /must be whsec_/],
    ["whsec_", /must be whsec_/],
    [own(23), /is whsec_ and the base64 of 23 bytes; it must be that of 24 to 64 bytes/],
    [own(65), /is whsec_ and the base64 of 65 bytes/],
    [`${own(32)} `, /must be whsec_/],
    [`whsec_${Buffer.alloc(32, 251).toString("base64url")}`, /must be whsec_/],
    [`whsec_${"é".repeat(40)}`, /must be whsec_/],
    [`WHSEC_${base64(32)}`, /must be whsec_/],
  ])("of %j is refused, and the error does not repeat it", async (secret, message) => {
    const webhookId = await api.register();
    const before = await secrets.read(webhookId);
    const url = "https://receiver.example/own-refused";
    for (const call of [
      () => webhooks.rotateWebhookSecret({ webhookId, secret }),
      () => webhooks.createWebhook({ process: 1, url, secret }),
      () => endpoints.createEndpoint({ processes: [1], url, secret }),
    ]) {
      await expectRefused(call(), Code.InvalidArgument, message, "FIELDS_INVALID");
      const error = await failure(call());
      if (secret.length > 10) expect(error?.message).not.toContain(secret.slice(6, 30));
    }
    expect(await secrets.read(webhookId)).toEqual(before);
  });

  test("may leave the padding out", async () => {
    const webhookId = await api.register();
    const { secret } = await webhooks.rotateWebhookSecret({ webhookId, secret: own(32).replace("=", "") });
    expect(secret).toBe(own(32));
  });

  test("§4.2: is no parameter of REST", async () => {
    const url = "https://receiver.example/own-rest";
    const { envelope } = await api.rest("POST", "/api/webhook", {
      json: { process: 1, url, secret: own(32) },
    });
    const [{ text } = { text: "" }] = await secrets.read(BigInt(envelope.Data.Id));
    expect(text).not.toBe(own(32));
  });
});
