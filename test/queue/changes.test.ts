import { randomUUID } from "node:crypto";
import pino from "pino";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { createAnnouncer } from "../../src/events/announce.ts";
import { createApiKey } from "../../src/keys/api-keys.ts";
import type { Db } from "../../src/lib/pg/database.ts";
import { announceQueued, type HeldWebhook, loadStopped, openChangeFeed } from "../../src/queue/changes.ts";
import { updateEndpoint } from "../../src/webhooks/endpoints.ts";
import { deleteKeyPairs, rotateKeyPair } from "../../src/webhooks/key-pairs.ts";
import { NO_REQUEST_SETTINGS, writeRequestSettings } from "../../src/webhooks/request-settings.ts";
import { raiseRevisions } from "../../src/webhooks/revisions.ts";
import { createSecretBox } from "../../src/webhooks/secret-box.ts";
import { rotateWebhookSecret } from "../../src/webhooks/webhook-secrets.ts";
import { updateWebhook } from "../../src/webhooks/webhook-update.ts";
import { createWebhook } from "../../src/webhooks/webhooks.ts";
import { aWebhook } from "../support/builders.ts";
import { freshUrl } from "../support/test-api.ts";
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
    await expect(feed.look()).rejects.toMatchObject({ code: "25006" });
  });

  // When webhooks are made, paused, moved and deleted is in the model of the storage.
  test.each([null, "a"])(
    "sees that webhooks of their owner have changed whenever one gets other secrets, key pairs or settings, and at no other time (%s)",
    async (customer) => {
      const { feed } = await listen();
      await db.raw("insert into processes (process, revision, live) values (1, 1, 1)");
      await db.raw(
        "insert into customer_processes (customer, process, revision, live) values ('a', 1, 1, 1)",
      );
      const id = await aWebhook().with({ customer }).in(db);
      expect(await feed.look()).toBe("all");
      await updateWebhook(db, "everything", id, { paused: true });
      expect(await feed.look()).toEqual(new Set([customer]));
      for (const change of [
        (trx: Db) => rotateWebhookSecret(trx, box, [id]),
        (trx: Db) => rotateKeyPair(trx, box, [id], false),
        (trx: Db) => deleteKeyPairs(trx, [id]),
        (trx: Db) => writeRequestSettings(trx, box, [id], NO_REQUEST_SETTINGS),
      ]) {
        await db.transaction<unknown>(change);
        expect(await feed.look(), String(change)).toEqual(new Set([customer]));
      }
      await queue(db, 1);
      await updateWebhook(db, "everything", id, { paused: true });
      // None is left to delete.
      await deleteKeyPairs(db, [id]);
      expect(await feed.look()).toEqual(new Set());
    },
  );

  test("tells nothing of a customer's new webhook, which concerns no delivery, but of one that joins another", async () => {
    const { id: apiKeyId } = (await createApiKey(db, { name: "a", permissions: [1], customer: "a" })).key;
    const register = async () => {
      const url = freshUrl();
      return createWebhook(db, box, { process: 1, url, targetUrl: url, apiKeyId, customer: "a" }, 10);
    };
    const webhookId = (await register()).webhook.id;
    const changed = () =>
      db("customer_processes").where({ customer: "a", process: 1 }).first("changed", "live");
    const before = await changed();
    const { feed } = await listen();
    await feed.look();
    await register();
    expect(await feed.look()).toEqual(new Set());
    expect(await changed()).toEqual({ ...before, live: 2 });
    await updateEndpoint(db, box, "everything", { webhookId }, { add: [2], remove: [] }, 10, async () => {});
    expect(await feed.look()).toEqual(new Set(["a"]));
  });

  test("misses no change of customers' webhooks while transactions overlap, and tells of each once", async () => {
    const customers = ["a", "b", "c"];
    for (const customer of customers)
      await db.raw("insert into customer_processes (customer, process, revision, live) values (?, 1, 1, 1)", [
        customer,
      ]);
    const raise = (on: Db, customer: string) => raiseRevisions(on, [{ customer, process: 1 }]);
    const { feed } = await listen();
    await feed.look();
    const look = async () => [...(await feed.look())];
    // Begins first and ends last.
    const long = await db.transaction();
    await raise(long, "a");
    await raise(db, "b");
    expect(await look()).toEqual(["b"]);
    expect(await look()).toEqual([]);
    // It writes a row that a later one has written.
    const [, later] = [await raise(db, "c"), await db.transaction()];
    await raise(later, "b");
    expect(await look()).toEqual(["c"]);
    await later.commit();
    await raise(long, "b");
    expect(await look()).toEqual(["b"]);
    await long.commit();
    expect((await look()).sort()).toEqual(["a", "b"]);
    expect(await look()).toEqual([]);
    for (let n = 0; n < 3; n += 1) {
      await raise(db, "c");
      expect(await look()).toEqual(["c"]);
    }
  });

  test("sees each change in some look, whatever overlaps", async () => {
    const customers = Array.from({ length: 5 }, (_, n) => `customer ${n}`);
    for (const customer of customers)
      await db.raw("insert into customer_processes (customer, process, revision, live) values (?, 1, 0, 1)", [
        customer,
      ]);
    const { feed } = await listen();
    await feed.look();
    const told = new Map<string | null, number>();
    const timesOf = (customer: string) => told.get(customer) ?? 0;
    /** Changes that were committed, with how often their customer had been told of just before. */
    let committed: { customer: string; before: number }[] = [];
    let changing = true;
    const looking = async () => {
      for (let isLast = false; !isLast; ) {
        isLast = !changing;
        const visible = committed;
        committed = [];
        for (const customer of await feed.look()) told.set(customer, (told.get(customer) ?? 0) + 1);
        for (const { customer, before } of visible) expect(timesOf(customer)).toBeGreaterThan(before);
      }
    };
    const change = async (first: number) => {
      for (let n = 0; n < 20; n += 1) {
        const customer = customers[(first + n) % 5] as string;
        let before = 0;
        await db.transaction(async (trx) => {
          await trx.raw("select pg_current_xact_id(), pg_sleep(?)", [((first * 7 + n) % 5) / 500]);
          await raiseRevisions(trx, [{ customer, process: 1 }]);
          before = timesOf(customer);
        });
        committed.push({ customer, before });
      }
    };
    const changes = Promise.all([0, 1, 2].map(change)).finally(() => (changing = false));
    await Promise.all([looking(), changes]);
    expect(await feed.look()).toEqual(new Set());
  });

  test("learns that its connection has ended", async () => {
    const { feed } = await listen();
    await endConnections("webhook-service-changes");
    const hasEnded = () =>
      feed.look().then(
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
