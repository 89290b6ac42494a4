import { randomUUID } from "node:crypto";
import pino from "pino";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test, vi } from "vitest";
import { type Db, openDatabase } from "../../../src/db/database.ts";
import { createAnnouncer } from "../../../src/db/events/announce.ts";
import { announceQueued, loadStopped, openChangeFeed } from "../../../src/db/queue/changes.ts";
import { createSecretBox } from "../../../src/db/webhooks/secret-box.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { createWebhook, deleteWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { createTestDatabase, type TestDatabase } from "../../support/database.ts";
import { queue, TABLES } from "./queue.ts";

let database: TestDatabase;
let db: Db;
beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 5 });
});
beforeEach(() => db.raw(`truncate ${TABLES} cascade`));
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

  test("sees another revision whenever a webhook is made, paused, resumed, moved or deleted, and at no other time", async () => {
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
    const { webhook } = await createWebhook(db, createSecretBox(Buffer.alloc(32, 1)), registration, 10);
    await look();
    for (const paused of [true, false]) {
      await updateWebhook(db, "everything", webhook.id, { paused });
      await look();
    }
    const moved = "https://elsewhere.example/";
    await updateWebhook(db, "everything", webhook.id, { address: { url: moved, targetUrl: moved } });
    await look();
    await deleteWebhook(db, webhook.id);
    await look();
    for (const [index, revision] of revisions.entries())
      expect(revision).toBeGreaterThan(revisions[index - 1] ?? -1n);
    await queue(db, 1);
    const last = await feed.revision();
    expect(await updateWebhook(db, "everything", webhook.id, { paused: true })).toBeNull();
    expect(await feed.revision()).toBe(last);
  });

  test("is told when its connection has ended", async () => {
    const { feed, end } = await listen();
    await endConnections("webhook-service-changes");
    await expect.poll(() => end.mock.calls.length).toBe(1);
    await expect(feed.revision()).rejects.toThrow();
  });
});

test("a webhook is stopped while it is paused, once it is deleted or moved, and when it is not there", async () => {
  const [live, paused, deleted, moved] = [
    await queue(db, 0),
    await queue(db, 0),
    await queue(db, 0),
    await queue(db, 0),
  ];
  const held = async (...ids: bigint[]) =>
    (await db("webhooks").whereIn("id", ids.map(String))).map(({ id, target_url }) => ({
      id,
      target: { url: target_url },
    }));
  const before = await held(live, paused, deleted, moved);
  await updateWebhook(db, "everything", paused, { paused: true });
  await deleteWebhook(db, deleted);
  const address = { url: "https://moved.example/", targetUrl: "https://moved.example/" };
  await updateWebhook(db, "everything", moved, { address });
  const missing = { id: 1_000_000n, target: { url: "https://missing.example/" } };
  expect(await loadStopped(db, [...before, missing])).toEqual([paused, deleted, moved, missing.id]);
  expect(await loadStopped(db, [...before, ...(await held(moved))])).toEqual([paused, deleted, moved]);
  await updateWebhook(db, "everything", paused, { paused: false });
  expect(await loadStopped(db, await held(live, paused, moved))).toEqual([]);
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
