import { randomUUID } from "node:crypto";
import pino from "pino";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { Db } from "../../../src/db/database.ts";
import { createAnnouncer } from "../../../src/db/events/announce.ts";
import { announceQueued, loadStopped, openChangeFeed } from "../../../src/db/queue/changes.ts";
import { deleteKeyPairs, rotateKeyPair } from "../../../src/db/webhooks/key-pairs.ts";
import { NO_REQUEST_SETTINGS, writeRequestSettings } from "../../../src/db/webhooks/request-settings.ts";
import { createSecretBox } from "../../../src/db/webhooks/secret-box.ts";
import { rotateWebhookSecret } from "../../../src/db/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { createWebhook, deleteWebhook } from "../../../src/db/webhooks/webhooks.ts";
import { aKey } from "../../support/builders.ts";
import { openQueueDatabase, queue } from "./queue.ts";

const db = await openQueueDatabase();
const { connectionString: url } = db.client.config.connection as { connectionString: string };
const box = createSecretBox(Buffer.alloc(32, 1));
const moveTo = (address: string) => ({ address: { url: address, targetUrl: address } });

/** A feed that is closed with the test, and what it told. */
async function listen() {
  const told = { queued: vi.fn(), end: vi.fn() };
  const feed = await openChangeFeed(url, told);
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
    for (const { queued } of [one, other]) await expect.poll(() => queued.mock.calls.length).toBe(1);
  });

  test("sees another revision whenever a webhook is made, paused, resumed, moved, deleted or gets other secrets, key pairs or settings, and at no other time", async () => {
    const { feed } = await listen();
    const { id: apiKeyId } = await aKey().in(db);
    const address = "https://receiver.example/";
    const registration = { process: 1, url: address, targetUrl: address, apiKeyId };
    const { webhook } = await createWebhook(db, box, registration, 10);
    const { id } = webhook;
    const changes: ((trx: Db) => Promise<unknown>)[] = [
      (trx) => updateWebhook(trx, "everything", id, { paused: true }),
      (trx) => updateWebhook(trx, "everything", id, { paused: false }),
      (trx) => updateWebhook(trx, "everything", id, moveTo("https://elsewhere.example/")),
      (trx) => rotateWebhookSecret(trx, box, [id]),
      (trx) => rotateKeyPair(trx, box, [id], false),
      (trx) => deleteKeyPairs(trx, [id]),
      (trx) => writeRequestSettings(trx, box, [id], NO_REQUEST_SETTINGS),
      (trx) => deleteWebhook(trx, id),
    ];
    let last = await feed.revision();
    expect(last).toBeGreaterThan(0n);
    for (const change of changes) {
      await db.transaction(change);
      const revision = await feed.revision();
      expect(revision, String(change)).toBeGreaterThan(last);
      last = revision;
    }
    await queue(db, 1);
    expect(await updateWebhook(db, "everything", id, { paused: true })).toBeNull();
    // None is left to delete.
    await deleteKeyPairs(db, [id]);
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
  const ids: bigint[] = [];
  for (let n = 0; n < 5; n += 1) ids.push(await queue(db, 0));
  const [live, paused, deleted, moved, rotated] = ids as [bigint, bigint, bigint, bigint, bigint];
  const held = async (...some: bigint[]) =>
    (await db("webhooks").whereIn("id", some.map(String))).map(({ id, revision }) => ({ id, revision }));
  const before = await held(...ids);
  await updateWebhook(db, "everything", paused, { paused: true });
  await deleteWebhook(db, deleted);
  await updateWebhook(db, "everything", moved, moveTo("https://moved.example/"));
  await rotateWebhookSecret(db, box, [rotated], true);
  // The service writes to these rows at full speed, which must not release deliveries.
  const test = randomUUID();
  await db("webhooks").update({ rate_tokens: 1, test_delivery: test });
  const missing = { id: 1_000_000n, revision: 1n };
  expect(await loadStopped(db, [...before, missing])).toEqual([paused, deleted, moved, rotated, missing.id]);
  expect(await loadStopped(db, [...before, ...(await held(moved))])).toEqual([
    paused,
    deleted,
    moved,
    rotated,
  ]);
  const [known] = (await held(paused)) as [(typeof before)[0]];
  expect(await loadStopped(db, [{ ...known, onlyId: test }])).toEqual([]);
  expect(await loadStopped(db, [{ ...known, onlyId: randomUUID() }])).toEqual([paused]);
  await updateWebhook(db, "everything", paused, { paused: false });
  expect(await loadStopped(db, await held(live, paused, moved, rotated))).toEqual([]);
  expect(await loadStopped(db, [])).toEqual([]);
});

describe("an announcer", () => {
  const announcing = () => createAnnouncer(url, pino({ level: "silent" }));

  test("makes few announcements of many, at least one after the last, and goes on once the database is back", async () => {
    const { queued } = await listen();
    const announcer = announcing();
    onTestFinished(() => announcer.close());
    const announced = () => queued.mock.calls.length;
    for (let n = 0; n < 1_000; n += 1) announcer.announce();
    // The first goes at once, and all that come meanwhile with one more.
    await expect.poll(announced).toBe(2);
    announcer.announce();
    await expect.poll(announced).toBe(3);
    await endConnections("webhook-service-announcements");
    await expect
      .poll(() => {
        // Whoever queues hears nothing of its absence.
        announcer.announce();
        return announced();
      })
      .toBeGreaterThan(3);
  });

  test("that is closed announces nothing more", async () => {
    const { queued } = await listen();
    const announcer = announcing();
    await announcer.close();
    announcer.announce();
    await announceQueued(db);
    await expect.poll(() => queued.mock.calls.length).toBe(1);
  });
});
