import { randomUUID } from "node:crypto";
import pino from "pino";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { createAnnouncer } from "../../src/events/announce.ts";
import type { Db } from "../../src/lib/pg/database.ts";
import { announceQueued, type HeldWebhook, loadStopped, openChangeFeed } from "../../src/queue/changes.ts";
import { deleteKeyPairs, rotateKeyPair } from "../../src/webhooks/key-pairs.ts";
import { NO_REQUEST_SETTINGS, writeRequestSettings } from "../../src/webhooks/request-settings.ts";
import { createSecretBox } from "../../src/webhooks/secret-box.ts";
import { rotateWebhookSecret } from "../../src/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { aWebhook } from "../support/builders.ts";
import { openQueueDatabase, queue } from "./queue.ts";

const db = await openQueueDatabase();
const { connectionString: url } = db.client.config.connection as { connectionString: string };
const box = createSecretBox(Buffer.alloc(32, 1));

/** A feed that is closed with the test, and what it told. */
async function listen() {
  const queued = vi.fn();
  const feed = await openChangeFeed(url, queued);
  onTestFinished(() => feed.close());
  return { queued, feed };
}

const endConnections = (name: string) =>
  db.raw(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and application_name = ?",
    [name],
  );

describe("a listener for changes", () => {
  test("learns that deliveries were queued, in each process", async () => {
    const [one, other] = [await listen(), await listen()];
    await announceQueued(db);
    for (const { queued } of [one, other]) await expect.poll(() => queued.mock.calls.length).toBe(1);
  });

  test("does not trust a session that can only read", async () => {
    const feed = await openChangeFeed(`${url}?options=-c%20default_transaction_read_only%3Don`, () => {});
    onTestFinished(() => feed.close());
    await expect(feed.revision()).rejects.toMatchObject({ code: "25006" });
  });

  // When webhooks are made, paused, moved and deleted is in the model of the storage.
  test("sees another revision whenever a webhook gets other secrets, key pairs or settings, and at no other time", async () => {
    const { feed } = await listen();
    await db("processes").insert({ process: 1, revision: 1n, live: 1 });
    const id = await aWebhook().in(db);
    await updateWebhook(db, "everything", id, { paused: true });
    let last = await feed.revision();
    expect(last).toBeGreaterThan(0n);
    for (const change of [
      (trx: Db) => rotateWebhookSecret(trx, box, [id]),
      (trx: Db) => rotateKeyPair(trx, box, [id], false),
      (trx: Db) => deleteKeyPairs(trx, [id]),
      (trx: Db) => writeRequestSettings(trx, box, [id], NO_REQUEST_SETTINGS),
    ]) {
      await db.transaction<unknown>(change);
      const revision = await feed.revision();
      expect(revision, String(change)).toBeGreaterThan(last);
      last = revision;
    }
    await queue(db, 1);
    await updateWebhook(db, "everything", id, { paused: true });
    // None is left to delete.
    await deleteKeyPairs(db, [id]);
    expect(await feed.revision()).toBe(last);
  });

  test("learns that its connection has ended", async () => {
    const { feed } = await listen();
    await endConnections("webhook-service-changes");
    const hasEnded = () =>
      feed.revision().then(
        () => false,
        () => true,
      );
    await expect.poll(hasEnded).toBe(true);
  });
});

// Which webhooks are stopped is in the model of the storage.
test("a webhook is stopped while it is paused, unless only its test delivery is held, and when it is not there", async () => {
  const [live, paused] = [await aWebhook().in(db), await aWebhook().paused().in(db)];
  // The service writes to these rows at full speed, which must not release deliveries.
  const test = randomUUID();
  await db("webhooks").update({ rate_tokens: 1, test_delivery: test });
  const [sending, held] = [live, paused].map((id) => ({ id, revision: 1n })) as [HeldWebhook, HeldWebhook];
  const stopped = (only: object = {}) => loadStopped(db, [sending, { ...held, ...only }]);
  expect(await stopped()).toEqual([paused]);
  expect(await stopped({ onlyId: test })).toEqual([]);
  expect(await stopped({ onlyId: randomUUID() })).toEqual([paused]);
  const stale = { id: live, revision: 0n };
  const missing = { id: 1_000_000n, revision: 1n };
  expect(await loadStopped(db, [held, stale, missing])).toEqual([live, paused, missing.id]);
  expect(await loadStopped(db, [])).toEqual([]);
});

describe("an announcer", () => {
  test("combines many announcements into few, with one after the last, and continues once the database is back", async () => {
    const { queued } = await listen();
    const announcer = createAnnouncer(url, pino({ level: "silent" }));
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
});
