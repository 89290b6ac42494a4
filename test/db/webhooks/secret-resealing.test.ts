import { randomBytes } from "node:crypto";
import pino from "pino";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type Db, openDatabase, rows } from "../../../src/db/database.ts";
import { readKeyPairs, rotateKeyPair } from "../../../src/db/webhooks/key-pairs.ts";
import {
  createSecretBox,
  type SecretBox,
  UnopenableError,
  WEBHOOK_SECRET_PURPOSE,
  webhookSecretContext,
} from "../../../src/db/webhooks/secret-box.ts";
import { resealSecrets } from "../../../src/db/webhooks/secret-resealing.ts";
import {
  newSealedSecret,
  readWebhookSecrets,
  rotateWebhookSecret,
} from "../../../src/db/webhooks/webhook-secrets.ts";
import { checkSecretKey, keepSealed, resealAll } from "../../../src/startup/secret-keys.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { queue } from "../queue/queue.ts";

let database: TestDatabase;
let db: Db;
beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 10 });
});
beforeEach(() => db.raw("truncate deliveries, events, webhooks, settings cascade"));
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

/** A former key and a new one, and the boxes of processes at each step of the change. */
function keys() {
  const [former, next] = [randomBytes(32), randomBytes(32)];
  return {
    former: createSecretBox(former),
    prepared: createSecretBox(former, [next]),
    changed: createSecretBox(next, [former]),
    next: createSecretBox(next),
  };
}

/** Webhooks whose secrets were sealed by this box. */
async function webhooksSealedBy(box: SecretBox, count: number): Promise<bigint[]> {
  const ids: bigint[] = [];
  for (let n = 0; n < count; n += 1) {
    const id = await queue(db, 0);
    await db.raw("update webhooks set secret = ? where id = ?", [newSealedSecret(box, id), String(id)]);
    ids.push(id);
  }
  return ids;
}

const secretsOf = async (box: SecretBox, ids: readonly bigint[]) =>
  Promise.all(
    ids.map(async (id) => (await readWebhookSecrets(db, box, "everything", id))?.map(({ secret }) => secret)),
  );

test("every secret is sealed anew under the current key, old ones too, and stays what it was", async () => {
  const { former, changed, next } = keys();
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

test("processes that seal anew at once, while secrets are rotated, lose none", async () => {
  const { former, changed, next } = keys();
  const ids = await webhooksSealedBy(former, 30);
  const before = await secretsOf(former, ids);
  const passes = [1, 2, 3].map(() => resealSecrets(db, changed));
  const rotations = ids.slice(10, 20).map((id) => rotateWebhookSecret(db, changed, [id]));
  const done = await Promise.all(passes);
  await Promise.all(rotations);
  expect(done.flatMap(({ unopenable }) => unopenable)).toEqual([]);
  await resealSecrets(db, changed);
  const after = await secretsOf(next, ids);
  for (const [index, secrets] of after.entries()) {
    const rotated = index >= 10 && index < 20;
    expect(secrets).toHaveLength(rotated ? 2 : 1);
    expect(secrets?.at(-1)).toEqual(before[index]?.[0]);
  }
});

test("a process that has the new key among its previous ones reads what is sealed under it: nothing stops meanwhile", async () => {
  const { former, prepared, changed } = keys();
  const ids = await webhooksSealedBy(former, 2);
  const before = await secretsOf(former, ids);
  await checkSecretKey(db, former);
  await checkSecretKey(db, prepared);
  await resealAll(db, changed);
  expect(await secretsOf(prepared, ids)).toEqual(before);
  await expect(checkSecretKey(db, prepared)).resolves.toBeUndefined();
});

test("the former key is needed no more once all is sealed anew, and refused from then on", async () => {
  const { former, changed, next } = keys();
  await webhooksSealedBy(former, 3);
  await checkSecretKey(db, former);
  await checkSecretKey(db, changed);
  await expect(checkSecretKey(db, next)).rejects.toThrow("add it to SECRET_KEY_PREVIOUS");
  await resealAll(db, changed);
  await expect(checkSecretKey(db, next)).resolves.toBeUndefined();
  await expect(checkSecretKey(db, former)).rejects.toThrow("SECRET_KEY_PREVIOUS");
});

test("secrets that open with no key are named, left as they are, and keep the former key needed", async () => {
  const { former, changed, next } = keys();
  const [good, lost] = [
    await webhooksSealedBy(former, 1),
    await webhooksSealedBy(createSecretBox(randomBytes(32)), 2),
  ];
  await checkSecretKey(db, former);
  const [gone] = lost;
  await db.raw("update webhooks set deleted = now() where id = ?", [String(gone)]);
  expect(await resealAll(db, changed)).toEqual({ resealed: 1, unopenable: [lost[1]] });
  expect(await secretsOf(next, good)).toHaveLength(1);
  await expect(checkSecretKey(db, next)).rejects.toThrow("SECRET_KEY");
  await rotateWebhookSecret(db, changed, [lost[1] as bigint]);
  expect((await resealAll(db, changed)).unopenable).toEqual([]);
  await expect(checkSecretKey(db, next)).resolves.toBeUndefined();
});

test("a service says in its log that all is sealed under the current key, or which webhooks' secrets are lost", async () => {
  const { former, changed } = keys();
  await webhooksSealedBy(former, 2);
  const lines: { level: number; msg: string; webhooks?: string[] }[] = [];
  const log = pino({ level: "info" }, { write: (line: string) => void lines.push(JSON.parse(line)) });
  const untilSaid = () => expect.poll(() => lines.length, { interval: 10 }).toBe(1);

  const stop = keepSealed(db, changed, { log, repeat: true });
  await untilSaid();
  await stop();
  expect(lines.splice(0)).toEqual([
    expect.objectContaining({
      level: 30,
      resealed: 2,
      msg: "all signing secrets are encrypted with SECRET_KEY",
    }),
  ]);

  const [lost] = await webhooksSealedBy(createSecretBox(randomBytes(32)), 1);
  const stopAgain = keepSealed(db, changed, { log, repeat: false });
  await untilSaid();
  await stopAgain();
  expect(lines[0]).toMatchObject({ level: 50, webhooks: [String(lost)] });
  expect(lines[0]?.msg).toContain("RotateWebhookSecret");
});

test("a box opens what any of its keys sealed, seals under the current one, and says when none opens", () => {
  const { former, changed, next } = keys();
  const sealed = former.seal("hush", "a");
  expect(changed.open(sealed, "a").toString()).toBe("hush");
  expect(next.open(changed.seal("hush", "a"), "a").toString()).toBe("hush");
  const anew = changed.reseal(sealed, "a");
  expect(next.open(anew as Buffer, "a").toString()).toBe("hush");
  expect(changed.reseal(anew as Buffer, "a")).toBeNull();
  expect(() => changed.reseal(sealed, "b")).toThrow(UnopenableError);
  expect(() => next.open(sealed, "a")).toThrow(UnopenableError);
});

test("the rows of a pass come in the order of their ids, however many pages they fill", async () => {
  const { former, changed, next } = keys();
  const [first] = await webhooksSealedBy(former, 1);
  await db.raw(
    `insert into webhooks (process, url, target_url, api_key_id, secret)
      select 1, url || n, target_url || n, api_key_id, ?::bytea from webhooks, generate_series(1, 450) n where id = ?`,
    [former.seal(randomBytes(32), "webhook-secret"), String(first)],
  );
  expect((await resealSecrets(db, changed)).resealed).toBe(451);
  const sealed = await rows<{ id: bigint; secret: Buffer }>(db, "select id, secret from webhooks");
  for (const { id, secret } of sealed) expect(next.open(secret, webhookSecretContext(id))).toHaveLength(32);
});

test("secrets that an earlier version sealed without their webhook's id are read, and sealed anew for it under the same key", async () => {
  const { next } = keys();
  const ids = await webhooksSealedBy(next, 3);
  const legacy = next.seal(randomBytes(32), WEBHOOK_SECRET_PURPOSE);
  await db.raw("update webhooks set secret = ? where id = ?", [legacy, String(ids[1])]);
  const before = await secretsOf(next, ids);
  expect(before[1]).toEqual([next.open(legacy, WEBHOOK_SECRET_PURPOSE)]);
  expect(await resealSecrets(db, next)).toEqual({ resealed: 1, unopenable: [] });
  expect(await resealSecrets(db, next)).toEqual({ resealed: 0, unopenable: [] });
  expect(await secretsOf(next, ids)).toEqual(before);
  const [row] = await rows<{ secret: Buffer }>(db, "select secret from webhooks where id = :id", {
    id: ids[1],
  });
  expect(() => next.open(row?.secret as Buffer, webhookSecretContext(ids[0] as bigint))).toThrow(
    UnopenableError,
  );
});

test("a secret that was moved to another webhook opens no more, whichever key is at hand, and is named", async () => {
  const { former, changed } = keys();
  const [a, b, c] = (await webhooksSealedBy(changed, 3)) as [bigint, bigint, bigint];
  await db.raw(
    "update webhooks w set secret = other.secret from webhooks other where w.id in (:a, :b) and other.id in (:a, :b) and w.id <> other.id",
    { a: String(a), b: String(b) },
  );
  for (const id of [a, b]) {
    const reading = readWebhookSecrets(db, changed, "everything", id);
    await expect(reading).rejects.toThrow(
      `secret of webhook ${id} can be decrypted with neither SECRET_KEY nor`,
    );
    await expect(reading).rejects.toThrow("was stored for another webhook");
  }
  expect(await readWebhookSecrets(db, changed, "everything", c)).toHaveLength(1);
  expect(await resealSecrets(db, changed)).toEqual({ resealed: 0, unopenable: [a, b] });
  const sealed = former.seal("hush", { purpose: "p", row: "1" });
  expect(changed.open(sealed, { purpose: "p", row: "1" }).toString()).toBe("hush");
  expect(() => changed.open(sealed, { purpose: "p", row: "2" })).toThrow("(p 2) cannot be opened");
  expect(() => changed.open(sealed, "p")).toThrow(UnopenableError);
  // A value cannot be passed off as one from before the binding.
  const downgraded = Buffer.concat([Buffer.of(1), sealed.subarray(1)]);
  expect(() => changed.open(downgraded, { purpose: "p", row: "1" })).toThrow(UnopenableError);
});
