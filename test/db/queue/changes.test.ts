import { randomUUID } from "node:crypto";
import pino from "pino";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { type Db, openDatabase } from "../../../src/db/database.ts";
import { createAnnouncer } from "../../../src/db/events/announce.ts";
import { announceQueued, loadStopped, openChangeFeed } from "../../../src/db/queue/changes.ts";
import { deleteKeyPairs, rotateKeyPair } from "../../../src/db/webhooks/key-pairs.ts";
import { NO_REQUEST_SETTINGS, writeRequestSettings } from "../../../src/db/webhooks/request-settings.ts";
import { createSecretBox } from "../../../src/db/webhooks/secret-box.ts";
import { rotateWebhookSecret } from "../../../src/db/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { createWebhook, deleteWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { empty, queue } from "./queue.ts";

let database: TestDatabase;
let db: Db;
const box = createSecretBox(Buffer.alloc(32, 1));
beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 5 });
});
beforeEach(() => empty(db));
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

/** A feed that is closed with the test, and what it told. */
async function listen() {
  const told = { queued: vi.fn(), end: vi.fn() };
  const feed = await openChangeFeed(database.url, told);
  onTestFinished(() => feed.close());
  return { ...told, feed };
}

const endConnections = (name: string) =>
  db.raw(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = ?",
    [name],
  );

describe("whoever listens for changes", () => {
  test("is told that deliveries were queued, in each process", async () => {
    const [one, other] = [await listen(), await listen()];
    await announceQueued(db);
    await expect.poll(() => one.queued.mock.calls.length).toBe(1);
    await expect.poll(() => other.queued.mock.calls.length).toBe(1);
  });

  test("sees another revision whenever a webhook is made, paused, resumed, moved, deleted or gets other secrets, key pairs or settings, and at no other time", async () => {
    const { feed } = await listen();
    const apiKeyId = randomUUID();
    const key = {
      id: apiKeyId,
      name: "k",
      prefix: "p",
      secret_sha256: Buffer.alloc(32, 7),
      permissions: [1],
    };
    await db("api_keys").insert(key);
    const url = "https://receiver.example/";
    const revisions = [await feed.revision()];
    const look = async () => revisions.push(await feed.revision());
    const registration = { process: 1, url, targetUrl: url, apiKeyId };
    const { webhook } = await createWebhook(db, box, registration, 10);
    await look();
    for (const paused of [true, false]) {
      await updateWebhook(db, "everything", webhook.id, { paused });
      await look();
    }
    const moved = "https://elsewhere.example/";
    await updateWebhook(db, "everything", webhook.id, { address: { url: moved, targetUrl: moved } });
    await look();
    const changes = [
      (trx: Db) => rotateWebhookSecret(trx, box, [webhook.id]),
      (trx: Db) => rotateKeyPair(trx, box, [webhook.id], false),
      (trx: Db) => deleteKeyPairs(trx, [webhook.id]),
      (trx: Db) => writeRequestSettings(trx, box, [webhook.id], NO_REQUEST_SETTINGS),
    ];
    for (const change of changes) {
      await db.transaction<unknown>(change);
      await look();
    }
    await deleteWebhook(db, webhook.id);
    await look();
    for (const [index, revision] of revisions.entries())
      expect(revision).toBeGreaterThan(revisions[index - 1] ?? -1n);
    await queue(db, 1);
    const last = await feed.revision();
    expect(await updateWebhook(db, "everything", webhook.id, { paused: true })).toBeNull();
    // None is left to delete.
    await deleteKeyPairs(db, [webhook.id]);
    expect(await feed.revision()).toBe(last);
  });

  test("is told when its connection has ended", async () => {
    const { feed, end } = await listen();
    await endConnections("webhook-service-changes");
    await expect.poll(() => end.mock.calls.length).toBe(1);
    await expect(feed.revision()).rejects.toThrow();
  });
});

test("a webhook is stopped while it is paused, unless only its test delivery is held, once it is deleted or changed, and when it is not there", async () => {
  const [live, paused, deleted, moved, rotated] = [
    await queue(db, 0),
    await queue(db, 0),
    await queue(db, 0),
    await queue(db, 0),
    await queue(db, 0),
  ];
  const held = async (...ids: bigint[]) =>
    (await db("webhooks").whereIn("id", ids.map(String))).map(({ id, revision }) => ({ id, revision }));
  const before = await held(live, paused, deleted, moved, rotated);
  await updateWebhook(db, "everything", paused, { paused: true });
  await deleteWebhook(db, deleted);
  const address = { url: "https://moved.example/", targetUrl: "https://moved.example/" };
  await updateWebhook(db, "everything", moved, { address });
  await rotateWebhookSecret(db, box, [rotated], true);
  // The service writes to these rows at full speed, which must not release deliveries.
  await db("webhooks").update({ rate_tokens: 1, test_delivery: randomUUID() });
  const missing = { id: 1_000_000n, revision: 1n };
  expect(await loadStopped(db, [...before, missing])).toEqual([paused, deleted, moved, rotated, missing.id]);
  expect(await loadStopped(db, [...before, ...(await held(moved))])).toEqual([
    paused,
    deleted,
    moved,
    rotated,
  ]);
  const [{ test_delivery: test } = { test_delivery: null }] = await db("webhooks").where({ id: paused });
  const [known] = await held(paused);
  if (!known || test === null) throw new Error("it was to have a test delivery");
  expect(await loadStopped(db, [{ ...known, onlyId: test }])).toEqual([]);
  expect(await loadStopped(db, [{ ...known, onlyId: randomUUID() }])).toEqual([paused]);
  await updateWebhook(db, "everything", paused, { paused: false });
  expect(await loadStopped(db, await held(live, paused, moved, rotated))).toEqual([]);
  expect(await loadStopped(db, [])).toEqual([]);
});

describe("an announcer", () => {
  const log = pino({ level: "silent" });

  test("makes few announcements of many, and at least one after the last", async () => {
    const { queued } = await listen();
    const announcer = createAnnouncer(database.url, log);
    onTestFinished(() => announcer.close());
    for (let n = 0; n < 1_000; n += 1) announcer.announce();
    // The first goes at once, and all that come meanwhile with one more.
    await expect.poll(() => queued.mock.calls.length).toBe(2);
    announcer.announce();
    await expect.poll(() => queued.mock.calls.length).toBe(3);
  });

  test("announces again once the database is back, and whoever queues hears nothing of its absence", async () => {
    const { queued } = await listen();
    const announcer = createAnnouncer(database.url, log);
    onTestFinished(() => announcer.close());
    announcer.announce();
    await expect.poll(() => queued.mock.calls.length).toBe(1);
    await endConnections("webhook-service-announcements");
    await expect
      .poll(() => {
        announcer.announce();
        return queued.mock.calls.length;
      })
      .toBeGreaterThan(1);
  });

  test("that is closed announces nothing more", async () => {
    const { queued } = await listen();
    const announcer = createAnnouncer(database.url, log);
    await announcer.close();
    announcer.announce();
    await announceQueued(db);
    await expect.poll(() => queued.mock.calls.length).toBe(1);
  });
});
