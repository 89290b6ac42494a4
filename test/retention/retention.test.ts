import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { publishEvents } from "../../src/events/publish.ts";
import { count, openDatabase, rows } from "../../src/lib/pg/database.ts";
import { listPartitions } from "../../src/schema/partitions.ts";
import { claim, queue, record } from "../queue/queue.ts";
import { anEvent } from "../support/new-event.ts";
import { type Stored, storeDeliveries } from "../support/stored-deliveries.ts";
import { useRetention } from "./retention-parts.ts";

const shared = await useRetention();
const { db, begin, maintain, daysAgo, storeEvent, storeKeys } = shared;
const { retain, retainAndDrop, partitionOf, allPartitionsOf, attachedOf, isThere } = shared;

test("an open delivery older than the retention ends as failed, a step at a time, and a younger one stays open", async () => {
  const [old, young] = [daysAgo(31), daysAgo(29)];
  const many = (created: Date, state: "pending" | "retrying", n: number) =>
    Array.from({ length: n }, (): Stored => ({ webhookId: 1n, created, state, attempts: 2 }));
  await storeDeliveries(db, [...many(old, "pending", 1_300), ...many(old, "retrying", 300)]);
  await storeDeliveries(db, [...many(young, "pending", 2), ...many(young, "retrying", 3)]);
  expect((await retain()).map(({ expired }) => expired)).toEqual([1_300, 300]);
  const states =
    "select state, reason, attempts, count(*)::int as n from all_deliveries group by 1, 2, 3 order by 1";
  expect(await rows(db, states)).toEqual([
    { state: "failed", reason: "expired", attempts: 2, n: 1_600 },
    { state: "pending", reason: null, attempts: 2, n: 2 },
    { state: "retrying", reason: null, attempts: 2, n: 3 },
  ]);
});

describe("partitions", () => {
  test("are dropped a week after their deliveries have expired: the log, its attempts, the search terms, then the events", async () => {
    const [gone, stays] = [daysAgo(38.5), daysAgo(36)];
    for (const created of [gone, stays, daysAgo(29)]) await storeEvent(created);
    await storeEvent(daysAgo(20), { state: "pending" });
    expect(await retainAndDrop()).toEqual(allPartitionsOf(gone));
    for (const table of allPartitionsOf(gone)) expect(await isThere(table)).toBe(false);
    expect(await attachedOf(stays)).toEqual(allPartitionsOf(stays));
    expect(await db("deliveries").pluck("outcome")).toEqual(["delivered", "delivered"]);
    expect(await db("events").pluck("user_id")).toEqual(["u", "u", "u"]);
    expect(await retain()).toEqual([]);
    // It is noted from when on deliveries are kept.
    const noted =
      "select from settings where name = 'retained_from' and time_of_id(value::uuid) > :gone::timestamptz";
    expect(await rows(db, noted, { gone })).toHaveLength(1);
  });

  test("are kept while a delivery of their time is open or being fanned out, and dropped once it has ended", async () => {
    const webhookId = await queue(db, 0);
    const [older, open, newer] = [daysAgo(60), daysAgo(50), daysAgo(40)];
    for (const created of [older, newer]) await storeEvent(created);
    const { eventId } = await storeEvent(open, { webhookId, state: "pending" });
    // Claimed, so that it does not expire.
    const deliveries = await claim(db);
    expect(await retainAndDrop()).toEqual(allPartitionsOf(older));
    await record(db, deliveries, 200);
    await db("fan_out").insert({ event_id: eventId, process: 1, revision: 1, remaining: 1 });
    expect(await retain()).toEqual([]);
    await db("fan_out").delete();
    const both = [...allPartitionsOf(open), ...allPartitionsOf(newer)];
    expect((await retainAndDrop()).toSorted()).toEqual(both.toSorted());
  });
});

describe("idempotency keys", () => {
  test("go with their events, and can be used again then; those that stand for a newer event by now stay", async () => {
    const [created, stays] = [daysAgo(40), daysAgo(10)];
    const { apiKeyId } = await storeEvent(created, {}, "key");
    const young = await storeEvent(stays, {}, "key");
    const renewed = await storeEvent(created);
    await db("idempotency_keys").where({ event_id: renewed.eventId }).update({ event_id: young.eventId });
    expect((await retain()).map(({ keys }) => keys)).toEqual([1, 0]);
    expect(await db("idempotency_keys").pluck("event_id")).toEqual([young.eventId, young.eventId]);
    const again = await publishEvents(db, [anEvent({ apiKeyId, idempotencyKey: "key" })]);
    expect(again).toMatchObject([{ duplicate: false }]);
  });

  test("are deleted in steps that read each event once, and once more to find that none is left", async () => {
    const keys = 20_000;
    const created = daysAgo(40);
    await storeEvent(created);
    await storeKeys(created, keys - 1);
    const events = partitionOf("events", created);
    // One connection, because each reports what it has read by itself.
    const worker = openDatabase(db.client.config.connection.connectionString, { max: 1 });
    onTestFinished(() => worker.destroy());
    const rowsRead = async () => {
      await worker.raw("select pg_stat_force_next_flush()");
      const read =
        "select (seq_tup_read + idx_tup_fetch)::int as n from pg_stat_user_tables where relname = :events";
      return (await rows<{ n: number }>(worker, read, { events }))[0]?.n ?? 0;
    };
    // The partition stays, and with it the count of what was read.
    await maintain(events);
    const before = await rowsRead();
    const steps = await retain(worker);
    expect(steps.reduce((sum, step) => sum + step.keys, 0)).toBe(keys);
    const read = (await rowsRead()) - before;
    expect(read).toBeGreaterThanOrEqual(2 * keys);
    expect(read).toBeLessThan(3 * keys);
  });
});

describe("a partition that is in the way of others", () => {
  const created = daysAgo(40);
  const name = partitionOf("deliveries", created);
  /** What is stored for so long that its partitions are to be dropped. */
  beforeEach(() => storeEvent(created));

  test("since somebody reads it for longer than the lock time-out stays, nobody waits, and it is dropped at the next call", async () => {
    const reader = await begin("select count(*) from deliveries");
    expect(await retainAndDrop()).not.toContain(name);
    expect(await attachedOf(created)).toContain(name);
    await queue(db, 1);
    expect((await record(db, await claim(db), 200)).size).toBe(1);
    await reader.commit();
    expect(await retainAndDrop()).toContain(name);
    expect(await attachedOf(created)).toEqual([]);
  });

  test("that is still maintained is kept as a whole, with its events and attempts", async () => {
    const vacuum = await maintain(name);
    expect(await retainAndDrop()).toEqual([]);
    expect(await attachedOf(created)).toEqual(allPartitionsOf(created));
    await vacuum.commit();
    expect(await retainAndDrop()).toEqual(allPartitionsOf(created));
  });

  test("is dropped too when its detachment was interrupted", async () => {
    const detachedPending = async () =>
      (await listPartitions(db, "deliveries")).filter(({ detaching }) => detaching).map((each) => each.name);
    const reader = await begin("select count(*) from deliveries");
    const detaching = db
      .raw(`alter table deliveries detach partition ${name} concurrently`)
      .catch((error: Error) => error);
    await expect.poll(detachedPending).toEqual([name]);
    await count(
      db,
      "select pg_cancel_backend(pid) from pg_stat_activity where query like 'alter table deliveries detach%' and state = 'active'",
    );
    expect(await detaching).toMatchObject({ code: "57014" });
    await reader.commit();
    expect(await detachedPending()).toEqual([name]);
    expect(await retainAndDrop()).toContain(name);
    expect(await isThere(name)).toBe(false);
  });

  test("is dropped too when the process that detached it has died", async () => {
    await db.raw(`alter table deliveries detach partition ${name}`);
    await retain();
    expect(await isThere(name)).toBe(false);
  });
});
