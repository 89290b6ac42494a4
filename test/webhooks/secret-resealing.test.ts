import { randomBytes } from "node:crypto";
import pino from "pino";
import { beforeEach, expect, test } from "vitest";
import { checkSecretKey, keepSealed, resealAll } from "../../src/app/secret-keys.ts";
import { readKeyPairs, rotateKeyPair } from "../../src/webhooks/key-pairs.ts";
import {
  createSecretBox,
  type SecretBox,
  UnopenableError,
  WEBHOOK_SECRET_PURPOSE,
  webhookSecretContext,
} from "../../src/webhooks/secret-box.ts";
import { resealSecrets } from "../../src/webhooks/secret-resealing.ts";
import {
  newSealedSecret,
  readWebhookSecrets,
  rotateWebhookSecret,
} from "../../src/webhooks/webhook-secrets.ts";
import { openQueueDatabase, queue, queueMany } from "../queue/queue.ts";

const db = await openQueueDatabase();

/** A former key and a new one, and the boxes of processes at each step of the change. */
let former: SecretBox;
let changed: SecretBox;
let next: SecretBox;
beforeEach(() => {
  const keys: [Buffer, Buffer] = [randomBytes(32), randomBytes(32)];
  former = createSecretBox(keys[0]);
  changed = createSecretBox(keys[1], [keys[0]]);
  next = createSecretBox(keys[1]);
});

/** Webhooks whose secrets were sealed by this box. */
async function webhooksSealedBy(box: SecretBox, count: number): Promise<bigint[]> {
  const ids: bigint[] = [];
  for (let n = 0; n < count; n += 1) {
    const id = await queue(db, 0);
    await store(id, newSealedSecret(box, id));
    ids.push(id);
  }
  return ids;
}

const store = (id: bigint, secret: Buffer) => db("webhooks").where({ id }).update({ secret });

const secretsOf = async (box: SecretBox, ids: readonly bigint[]) =>
  Promise.all(ids.map(async (id) => (await readWebhookSecrets(db, box, id))?.map(({ secret }) => secret)));

test("every secret, old ones too, is re-encrypted with the current key, and keeps its value", async () => {
  const ids = await webhooksSealedBy(former, 5);
  await rotateWebhookSecret(db, former, [ids[2] as bigint]);
  for (let n = 0; n < 2; n += 1) await rotateKeyPair(db, former, [ids[3] as bigint], false);
  const pairs = await readKeyPairs(db, former, ids[3] as bigint);
  const before = await secretsOf(former, ids);
  expect(before.map((secrets) => secrets?.length)).toEqual([1, 1, 2, 1, 1]);
  expect(await secretsOf(changed, ids)).toEqual(before);

  expect(await resealSecrets(db, changed)).toEqual({ resealed: 5, unopenable: [] });
  expect(await secretsOf(next, ids)).toEqual(before);
  expect(pairs).toHaveLength(2);
  expect(await readKeyPairs(db, next, ids[3] as bigint)).toEqual(pairs);
  await expect(secretsOf(former, ids)).rejects.toThrow("SECRET_KEY_PREVIOUS");
  expect(await resealSecrets(db, changed)).toEqual({ resealed: 0, unopenable: [] });
});

test("processes that re-encrypt at the same time, while secrets are rotated, lose none", async () => {
  const ids = await webhooksSealedBy(former, 30);
  const before = await secretsOf(former, ids);
  const passes = [1, 2, 3].map(() => resealSecrets(db, changed));
  const rotations = ids.slice(10, 20).map((id) => rotateWebhookSecret(db, changed, [id]));
  expect((await Promise.all(passes)).flatMap(({ unopenable }) => unopenable)).toEqual([]);
  await Promise.all(rotations);
  await resealSecrets(db, changed);
  for (const [index, secrets] of (await secretsOf(next, ids)).entries()) {
    expect(secrets).toHaveLength(index >= 10 && index < 20 ? 2 : 1);
    expect(secrets?.at(-1)).toEqual(before[index]?.[0]);
  }
});

test("secrets that open with no key are named, left as they are, and keep the former key needed; then it is refused", async () => {
  const good = await webhooksSealedBy(former, 1);
  const [gone, lost] = (await webhooksSealedBy(createSecretBox(randomBytes(32)), 2)) as [bigint, bigint];
  await checkSecretKey(db, former);
  await db("webhooks").where({ id: gone }).update({ deleted: new Date() });
  expect(await resealAll(db, changed)).toEqual({ resealed: 1, unopenable: [lost] });
  expect(await secretsOf(next, good)).toHaveLength(1);
  await expect(checkSecretKey(db, next)).rejects.toThrow("SECRET_KEY");
  await rotateWebhookSecret(db, changed, [lost]);
  expect((await resealAll(db, changed)).unopenable).toEqual([]);
  await checkSecretKey(db, next);
  await expect(checkSecretKey(db, former)).rejects.toThrow("SECRET_KEY_PREVIOUS");
});

test("a service says in its log that all is sealed under the current key, or which webhooks' secrets are lost", async () => {
  const lines: { level: number; msg: string; webhooks?: string[] }[] = [];
  const log = pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const say = async (repeat: boolean) => {
    const stop = keepSealed(db, changed, { log, repeat });
    await expect.poll(() => lines.length).toBe(1);
    await stop();
    return lines.pop();
  };
  await webhooksSealedBy(former, 2);
  const msg = "all signing secrets are encrypted with SECRET_KEY";
  expect(await say(true)).toMatchObject({ level: 30, resealed: 2, msg });
  const [lost] = await webhooksSealedBy(createSecretBox(randomBytes(32)), 1);
  const said = { level: 50, webhooks: [String(lost)], msg: expect.stringContaining("RotateWebhookSecret") };
  expect(await say(false)).toMatchObject(said);
});

test("secrets that an earlier version encrypted without the webhook's id are read, and re-encrypted with it in steps", async () => {
  const secret = next.seal(randomBytes(32), WEBHOOK_SECRET_PURPOSE);
  const ids = await queueMany(db, { urlPrefix: "https://example.com/", webhooks: 451, events: 0, secret });
  const [id, other] = ids as [bigint, bigint];
  const before = await secretsOf(next, [id]);
  expect(before).toEqual([[next.open(secret, WEBHOOK_SECRET_PURPOSE)]]);
  expect(await resealSecrets(db, next)).toEqual({ resealed: 451, unopenable: [] });
  expect(await resealSecrets(db, next)).toEqual({ resealed: 0, unopenable: [] });
  expect(await secretsOf(next, [id])).toEqual(before);
  const [sealed] = await db("webhooks").where({ id }).pluck("secret");
  expect(() => next.open(sealed as Buffer, webhookSecretContext(other))).toThrow(UnopenableError);
});

test("a secret that was moved to another webhook opens no more, whichever key is at hand, and is named", async () => {
  const [a, b, c] = (await webhooksSealedBy(changed, 3)) as [bigint, bigint, bigint];
  const sealed = db("webhooks").whereIn("id", [a, b]).orderBy("id");
  const [ofA, ofB] = (await sealed.pluck("secret")) as [Buffer, Buffer];
  await store(a, ofB);
  await store(b, ofA);
  for (const id of [a, b])
    await expect(readWebhookSecrets(db, changed, id)).rejects.toThrow(
      new RegExp(`secret of webhook ${id} can be decrypted with neither .*was stored for another webhook`),
    );
  expect(await readWebhookSecrets(db, changed, c)).toHaveLength(1);
  expect(await resealSecrets(db, changed)).toEqual({ resealed: 0, unopenable: [a, b] });
});

test("a value that is sealed for a row opens for no other row, nor as one from before the binding", () => {
  const sealed = former.seal("hush", { purpose: "p", row: "1" });
  expect(changed.open(sealed, { purpose: "p", row: "1" }).toString()).toBe("hush");
  expect(() => changed.open(sealed, { purpose: "p", row: "2" })).toThrow("(p 2) cannot be opened");
  expect(() => changed.open(sealed, "p")).toThrow(UnopenableError);
  const downgraded = Buffer.concat([Buffer.of(1), sealed.subarray(1)]);
  expect(() => changed.open(downgraded, { purpose: "p", row: "1" })).toThrow(UnopenableError);
});
