import { randomUUID } from "node:crypto";
import type { Knex } from "knex";
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { count, openDatabase, rows } from "../../../src/db/database.ts";
import { type RetentionStep, retentionStep } from "../../../src/db/deliveries/retention.ts";
import { foldDeltas } from "../../../src/db/deliveries/rollups.ts";
import { sendAgain } from "../../../src/db/deliveries/send-again.ts";
import { readOverview } from "../../../src/db/deliveries/stats.ts";
import { publishEvents } from "../../../src/db/events/publish.ts";
import {
  ensurePartitions,
  listPartitions,
  PARTITIONED,
  type Partitioned,
} from "../../../src/db/partitions.ts";
import { claimPending } from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { waitingQueries } from "../../support/grpc-calls.ts";
import { anEvent } from "../../support/new-event.ts";
import { idAt, type Stored, storeDeliveries } from "../../support/stored-deliveries.ts";
import { ALL, freshClaimant, openQueueDatabase, queue, result, SPACING } from "../queue/queue.ts";

const DAY_MS = 86_400_000;
/** Partitions are dropped a week later. */
const RETENTION_DAYS = 30;

const db = await openQueueDatabase();
beforeEach(async () => {
  const [all] = await rows<{ names: string | null }>(
    db,
    `select string_agg(relname, ', ') as names from pg_class
      where relkind = 'r' and relname ~ '^(${PARTITIONED.join("|")})_[0-9]+_[0-9]+$'`,
  );
  if (all?.names) await db.raw(`drop table ${all.names}`);
  await ensurePartitions(db, RETENTION_DAYS);
});

const others: Knex.Transaction[] = [];
afterEach(async () => {
  for (const other of others.splice(0)) if (!other.isCompleted()) await other.rollback();
});

/** A transaction of somebody else; ended with the test. */
async function begin(): Promise<Knex.Transaction> {
  const other = await db.transaction();
  others.push(other);
  return other;
}

const daysAgo = (days: number) => new Date(Date.now() - days * DAY_MS);

/** An event of a day, under the idempotency key `key`, with a delivery in a state. */
async function storeEvent(
  created: Date,
  delivery: Omit<Stored, "webhookId"> & { webhookId?: bigint } = {},
  key = randomUUID() as string,
): Promise<{ eventId: string; deliveryId: string; apiKeyId: string }> {
  const [eventId, apiKeyId] = [idAt(created), randomUUID()];
  const [deliveryId] = await storeDeliveries(db, [{ webhookId: 1n, created, eventId, ...delivery }]);
  await db("events").insert({
    id: eventId,
    api_key_id: apiKeyId,
    idempotency_key: key,
    process: 1,
    user_id: "u",
    occurred: created,
    recipients: 1,
    payload: "{}",
  });
  await db("idempotency_keys").insert({
    api_key_id: apiKeyId,
    idempotency_key: key,
    event_id: eventId,
    request_sha256: Buffer.alloc(32),
  });
  return { eventId, apiKeyId, deliveryId: deliveryId as string };
}

const delivered = (at: Date) => ({ state: "delivered", attempts: 1, finished: at }) as const;

/** Steps until nothing is left to do. */
async function retain(on = db): Promise<RetentionStep[]> {
  const steps: RetentionStep[] = [];
  for (;;) {
    const step = await retentionStep(on, on, RETENTION_DAYS);
    if (step.expired + step.keys + step.runs + step.partitions.length === 0) return steps;
    steps.push(step);
  }
}

const dropped = (steps: readonly RetentionStep[]) => steps.flatMap(({ partitions }) => partitions);

/** The partition of a day. */
function partitionOf(table: Partitioned, created: Date): string {
  const day = (at: number) => new Date(at).toISOString().slice(0, 10).replaceAll("-", "");
  return `${table}_${day(created.getTime())}_${day(created.getTime() + DAY_MS)}`;
}

const hasPartition = async (table: Partitioned, created: Date) =>
  (await listPartitions(db, table)).some(({ name }) => name === partitionOf(table, created));

describe("an open delivery", () => {
  test("older than the retention ends as failed, a step at a time, and a younger one stays open", async () => {
    const [old, young] = [daysAgo(31), daysAgo(29)];
    const many = (created: Date, state: "pending" | "retrying", n: number) =>
      Array.from({ length: n }, (): Stored => ({ webhookId: 1n, created, state, attempts: 2 }));
    await storeDeliveries(db, [
      ...many(old, "pending", 1_300),
      ...many(old, "retrying", 300),
      ...many(young, "pending", 2),
      ...many(young, "retrying", 3),
    ]);
    expect((await retain()).map(({ expired }) => expired)).toEqual([1_300, 300]);
    const ended = await rows(
      db,
      "select state, reason, attempts, count(*)::int as n from all_deliveries group by 1, 2, 3 order by 1",
    );
    expect(ended).toEqual([
      { state: "failed", reason: "expired", attempts: 2, n: 1_600 },
      { state: "pending", reason: null, attempts: 2, n: 2 },
      { state: "retrying", reason: null, attempts: 2, n: 3 },
    ]);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 1_600n, failedLastDay: 1_600n });
  });

  test("that is being sent ends by its attempt, however old", async () => {
    const webhookId = await queue(db, 0);
    await storeEvent(daysAgo(31), { webhookId });
    const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
    expect(deliveries).toHaveLength(1);
    expect(await retain()).toEqual([]);
    const states = await recordAttempts(
      db,
      deliveries.map((delivery) => result(delivery, 200)),
      SPACING,
    );
    expect([...states.values()]).toEqual(["delivered"]);
  });
});

describe("partitions", () => {
  test("are dropped a week after their deliveries have expired: the log, its attempts, the search terms, then the events", async () => {
    const [gone, stays] = [daysAgo(38.5), daysAgo(36)];
    for (const created of [gone, stays]) await storeEvent(created, delivered(created));
    const steps = await retain();
    expect(dropped(steps)).toEqual(PARTITIONED.map((table) => partitionOf(table, gone)));
    for (const table of PARTITIONED) {
      expect(await hasPartition(table, stays)).toBe(true);
      const { rows: left } = await db.raw("select to_regclass(?) as name", [partitionOf(table, gone)]);
      expect(left).toEqual([{ name: null }]);
    }
    expect(await db("deliveries").pluck("outcome")).toEqual(["delivered"]);
    expect(await db("events").pluck("user_id")).toEqual(["u"]);
    expect(await retain()).toEqual([]);
  });

  test("of younger deliveries stay, whatever became of them", async () => {
    for (const days of [1, 10, 29]) await storeEvent(daysAgo(days), delivered(daysAgo(days)));
    await storeEvent(daysAgo(20));
    expect(await retain()).toEqual([]);
    expect(await db("events").pluck("id")).toHaveLength(4);
  });

  test("stay as long as something open is of their time, and go once it has ended", async () => {
    const webhookId = await queue(db, 0);
    const [older, open, newer] = [daysAgo(60), daysAgo(50), daysAgo(40)];
    for (const created of [older, newer]) await storeEvent(created, delivered(created));
    await storeEvent(open, { webhookId });
    // Claimed, so that it does not expire.
    const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
    expect(dropped(await retain())).toEqual(PARTITIONED.map((table) => partitionOf(table, older)));
    for (const table of PARTITIONED) expect(await hasPartition(table, open)).toBe(true);
    await recordAttempts(
      db,
      deliveries.map((delivery) => result(delivery, 200)),
      SPACING,
    );
    expect(dropped(await retain())).toHaveLength(2 * PARTITIONED.length);
    for (const table of PARTITIONED) expect(await hasPartition(table, newer)).toBe(false);
  });

  test("stay as long as an event of their time is being fanned out", async () => {
    const created = daysAgo(40);
    const { eventId } = await storeEvent(created, delivered(created));
    await db("fan_out").insert({ event_id: eventId, process: 1, revision: 1, remaining: 1 });
    expect(await retain()).toEqual([]);
    await db("fan_out").delete();
    expect(dropped(await retain())).toHaveLength(PARTITIONED.length);
  });

  test("go only after it is noted from when on deliveries are kept", async () => {
    const created = daysAgo(40);
    await storeEvent(created, delivered(created));
    await retain();
    const { rows: noted } = await db.raw(
      "select value from settings where name = 'retained_from' and time_of_id(value::uuid) > ?",
      [created],
    );
    expect(noted).toHaveLength(1);
  });
});

describe("idempotency keys", () => {
  test("go with their events, and can be used again then", async () => {
    const [created, stays] = [daysAgo(40), daysAgo(10)];
    const { apiKeyId } = await storeEvent(created, delivered(created), "key");
    const young = await storeEvent(stays, delivered(stays), "key");
    await db.raw(
      `with e as (
        insert into events (id, api_key_id, idempotency_key, process, user_id, occurred)
        select overlay(?::text placing lpad(n::text, 12, '0') from 25)::uuid, gen_random_uuid(), n, 1, 'u', now()
        from generate_series(1, 1500) n returning id, api_key_id, idempotency_key
      )
      insert into idempotency_keys (event_id, api_key_id, idempotency_key, request_sha256)
      select id, api_key_id, idempotency_key, '\\x00' from e`,
      [idAt(created, 0)],
    );
    expect((await retain()).map(({ keys }) => keys)).toEqual([1_501, 0]);
    expect(await db("idempotency_keys").pluck("event_id")).toEqual([young.eventId]);
    const again = await publishEvents(db, [anEvent({ apiKeyId, idempotencyKey: "key" })]);
    expect(again).toMatchObject([{ duplicate: false }]);
  });

  test("are deleted in steps that read each event once, and once more to find that none is left", async () => {
    const created = daysAgo(40);
    await storeEvent(created, delivered(created));
    const events = partitionOf("events", created);
    await db.raw(
      `insert into events (id, api_key_id, idempotency_key, process, user_id, occurred)
        select overlay(?::text placing lpad(n::text, 12, '0') from 25)::uuid, gen_random_uuid(), n, 1, 'u', now()
        from generate_series(1, 20000) n`,
      [idAt(created, 0)],
    );
    await db.raw(
      `insert into idempotency_keys (event_id, api_key_id, idempotency_key, request_sha256)
        select id, api_key_id, idempotency_key, '\\x00' from ${events} on conflict do nothing`,
    );
    // One connection, because each reports what it has read by itself.
    const { connectionString } = db.client.config.connection;
    const worker = openDatabase(connectionString, { max: 1 });
    onTestFinished(() => worker.destroy());
    const rowsRead = async () => {
      await worker.raw("select pg_stat_force_next_flush()");
      const [found] = await rows<{ n: number }>(
        worker,
        "select (seq_tup_read + idx_tup_fetch)::int as n from pg_stat_user_tables where relname = :events",
        { events },
      );
      return found?.n ?? 0;
    };
    // The partition stays, and with it the count of what was read.
    const vacuum = await begin();
    await vacuum.raw(`lock table ${events} in share update exclusive mode`);
    const before = await rowsRead();
    const steps = await retain(worker);
    expect(steps.reduce((sum, { keys }) => sum + keys, 0)).toBe(20_001);
    const read = (await rowsRead()) - before;
    expect(read).toBeGreaterThanOrEqual(2 * 20_001);
    expect(read).toBeLessThan(3 * 20_001);
  });

  test("that stand for a newer event by now stay", async () => {
    const created = daysAgo(40);
    const { eventId } = await storeEvent(created, delivered(created));
    const newer = idAt(new Date());
    await db("idempotency_keys").where({ event_id: eventId }).update({ event_id: newer });
    expect(dropped(await retain())).toHaveLength(PARTITIONED.length);
    expect(await db("idempotency_keys").pluck("event_id")).toEqual([newer]);
  });
});

describe("a partition that is in the way of others", () => {
  /** What is stored for so long that its partitions are to be dropped. */
  async function storeOld(): Promise<Date> {
    const created = daysAgo(40);
    await storeEvent(created, delivered(created));
    return created;
  }

  const pending = async (table: Partitioned) =>
    (await listPartitions(db, table)).filter(({ detaching }) => detaching).map(({ name }) => name);

  test("since somebody reads it for longer than the lock time-out stays, and is dropped at the next call", async () => {
    const created = await storeOld();
    const reader = await begin();
    await reader.raw("select count(*) from deliveries");
    const steps = await retain();
    expect(dropped(steps)).not.toContain(partitionOf("deliveries", created));
    expect(await hasPartition("deliveries", created)).toBe(true);
    // Nobody else waits meanwhile.
    const { deliveries } = await (async () => {
      await queue(db, 1);
      return claimPending(db, await freshClaimant(db), ALL);
    })();
    const results = deliveries.map((delivery) => result(delivery, 200));
    expect((await recordAttempts(db, results, SPACING)).size).toBe(1);
    await reader.commit();
    expect(dropped(await retain())).toContain(partitionOf("deliveries", created));
    for (const table of PARTITIONED) expect(await hasPartition(table, created)).toBe(false);
  });

  test("since its maintenance goes on stays as a whole: its events and attempts stay with it", async () => {
    const created = await storeOld();
    // As VACUUM and CREATE INDEX CONCURRENTLY lock it.
    const vacuum = await begin();
    await vacuum.raw(`lock table ${partitionOf("deliveries", created)} in share update exclusive mode`);
    expect(dropped(await retain())).toEqual([]);
    for (const table of PARTITIONED) expect(await hasPartition(table, created)).toBe(true);
    await vacuum.commit();
    expect(dropped(await retain())).toHaveLength(PARTITIONED.length);
  });

  test("is dropped too when its detachment was interrupted", async () => {
    const created = await storeOld();
    const name = partitionOf("deliveries", created);
    const reader = await begin();
    await reader.raw("select count(*) from deliveries");
    const detaching = db
      .raw(`alter table deliveries detach partition ${name} concurrently`)
      .catch((error: Error) => error);
    await expect.poll(() => pending("deliveries")).toEqual([name]);
    await count(
      db,
      "select pg_cancel_backend(pid) from pg_stat_activity where query like 'alter table deliveries detach%' and state = 'active'",
    );
    expect(await detaching).toMatchObject({ code: "57014" });
    await reader.commit();
    expect(await pending("deliveries")).toEqual([name]);
    expect(dropped(await retain())).toContain(name);
    const { rows: left } = await db.raw("select to_regclass(?) as name", [name]);
    expect(left).toEqual([{ name: null }]);
  });

  test("and was detached by a process that died before it dropped it is dropped at the next call", async () => {
    const created = await storeOld();
    const name = partitionOf("deliveries", created);
    await db.raw(`alter table deliveries detach partition ${name}`);
    await retain();
    const { rows: left } = await db.raw("select to_regclass(?) as name", [name]);
    expect(left).toEqual([{ name: null }]);
  });
});

describe("payloads", () => {
  const PAYLOAD_DAYS = 3;
  beforeEach(() => db("settings").whereLike("name", "payloads%").delete());
  const payloads = async () =>
    (await rows<{ there: boolean }>(db, "select payload is not null as there from events order by id")).map(
      ({ there }) => there,
    );
  const erase = async () => {
    const looked: number[] = [];
    for (;;) {
      const step = await retentionStep(db, db, RETENTION_DAYS, PAYLOAD_DAYS);
      if (step.payloads === 0) return looked;
      looked.push(step.payloads);
    }
  };

  test("are erased after PAYLOAD_RETENTION_DAYS, and everything else stays", async () => {
    for (const days of [5, 4, 2]) await storeEvent(daysAgo(days), delivered(daysAgo(days)));
    expect(await erase()).toEqual([2]);
    expect(await payloads()).toEqual([false, false, true]);
    expect(await db("deliveries").pluck("outcome")).toEqual(["delivered", "delivered", "delivered"]);
    // What was looked at is not looked at again.
    expect(await erase()).toEqual([]);
  });

  test("are erased with the excerpts of responses, which may repeat them", async () => {
    for (const days of [5, 2]) {
      const { deliveryId } = await storeEvent(daysAgo(days), delivered(daysAgo(days)));
      const excerpts = { response_start: "the payload", response_headers: "[]" };
      await db("deliveries").where("id", deliveryId).update(excerpts);
      const attempt = { number: 1, started: daysAgo(days), duration_ms: 1, ...excerpts };
      await db("attempts").insert({ delivery_id: deliveryId, ...attempt });
    }
    expect(await erase()).toEqual([1]);
    for (const table of ["deliveries", "attempts"] as const) {
      expect(await db(table).orderBy("response_start").pluck("response_start")).toEqual([
        "the payload",
        null,
      ]);
      expect(await db(table).orderBy("response_headers").pluck("response_headers")).toEqual(["[]", null]);
    }
  });

  test("of an event with an open delivery stay until the delivery has ended; those of other events are erased", async () => {
    await storeEvent(daysAgo(6), delivered(daysAgo(6)));
    const { deliveryId } = await storeEvent(daysAgo(5), { state: "retrying", attempts: 1 });
    await storeEvent(daysAgo(4), delivered(daysAgo(4)));
    expect(await erase()).toEqual([3]);
    expect(await payloads()).toEqual([false, true, false]);
    expect(await erase()).toEqual([]);
    await db("retries").where("id", deliveryId).delete();
    expect(await erase()).toEqual([1]);
    expect(await payloads()).toEqual([false, false, false]);
    expect(await erase()).toEqual([]);
    expect(await db("settings").whereLike("name", "payloads_kept%")).toEqual([]);
  });

  test("stay, as do responses and search terms, only of events with open deliveries", async () => {
    const noon = new Date(daysAgo(5).setUTCHours(12, 0, 0, 0));
    const events = [];
    for (let n = 0; n < 3; n++) {
      const created = new Date(noon.getTime() + n);
      events.push(await storeEvent(created, n === 1 ? {} : delivered(created)));
    }
    const excerpt = { started: noon, duration_ms: 1, response_start: "the payload" };
    for (const { eventId, deliveryId } of events) {
      await db("attempts").insert({ delivery_id: deliveryId, number: 1, ...excerpt });
      await db("search_terms").insert({ term: 1, event_id: eventId });
    }
    expect(await erase()).toEqual([3]);
    expect(await payloads()).toEqual([false, true, false]);
    expect(await db("attempts").whereNotNull("response_start").pluck("delivery_id")).toEqual([
      events[1]?.deliveryId,
    ]);
    expect(await db("search_terms").pluck("event_id")).toEqual([events[1]?.eventId]);
    // Fewer days, and then more: what had to stay is not forgotten.
    expect((await retentionStep(db, db, RETENTION_DAYS, 20)).payloads).toBe(0);
    await db("queue").delete();
    expect((await retentionStep(db, db, RETENTION_DAYS, 20)).payloads).toBe(0);
    expect(await erase()).toEqual([3]);
    expect(await payloads()).toEqual([false, false, false]);
    expect(await db("search_terms").pluck("event_id")).toEqual([]);
  });

  test("of an event with a delivery that is being sent again stay until it has ended", async () => {
    const webhookId = await queue(db, 0);
    const { deliveryId } = await storeEvent(daysAgo(5), { webhookId, ...delivered(daysAgo(5)) });
    const sending = await begin();
    await sendAgain(sending, "everything", deliveryId, RETENTION_DAYS);
    const erased = erase();
    await expect.poll(() => waitingQueries({ context: { db } })).toBe(1);
    await sending.commit();
    expect(await erased).toEqual([1]);
    expect(await payloads()).toEqual([true]);
    await db("queue").where("id", deliveryId).delete();
    expect(await erase()).toEqual([1]);
    expect(await payloads()).toEqual([false]);
  });

  test("stay as long as their events without PAYLOAD_RETENTION_DAYS", async () => {
    await storeEvent(daysAgo(20), delivered(daysAgo(20)));
    await retain();
    expect(await payloads()).toEqual([true]);
  });
});

describe("statistics", () => {
  test("count what the log still has: hours go no sooner than the deliveries that they count", async () => {
    const webhookId = await queue(db, 0);
    // The first minute of the day of which the last minute is to be kept.
    const boundary = Date.now() - (RETENTION_DAYS + 7) * DAY_MS;
    const created = new Date(boundary - (boundary % DAY_MS));
    const failed = { state: "failed", finished: created, webhookId } as const;
    const { deliveryId } = await storeEvent(created, failed);
    await foldDeltas(db);
    await retain();
    expect(await db("deliveries").pluck("outcome")).toEqual(["failed"]);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 1n });
    await sendAgain(db, "everything", deliveryId, RETENTION_DAYS + 10);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 0n, pending: 1n });
  });

  test("no longer count deliveries of a dropped partition that ended after its time, each once", async () => {
    // Other tests have dropped a partition of the same name.
    await db("settings").whereLike("name", "rollups_without%").delete();
    const created = daysAgo(40);
    const late = daysAgo(8);
    const failed = { state: "failed", webhookId: await queue(db, 0) } as const;
    await storeEvent(created, { ...failed, finished: created });
    await storeEvent(created, { ...failed, finished: late });
    await storeEvent(created, { ...failed, state: "cancelled", finished: late });
    await storeEvent(created, { ...failed, state: "filtered", finished: late });
    // Of the same hour, and still stored.
    await storeEvent(daysAgo(8), { ...failed, finished: late });
    while ((await foldDeltas(db)) > 0);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 3n, cancelled: 1n, filtered: 1n });
    const vacuum = await begin();
    await vacuum.raw(`lock table ${partitionOf("deliveries", created)} in share update exclusive mode`);
    expect(dropped(await retain())).toEqual([]);
    await vacuum.commit();
    expect(dropped(await retain())).toHaveLength(PARTITIONED.length);
    expect(await db("deliveries").pluck("outcome")).toEqual(["failed"]);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 1n, cancelled: 0n, filtered: 0n });
    expect(await db("rollup_hours").orderBy("webhook_id").pluck("failed")).toEqual([1, 1]);
  });
});

describe("accounts of runs", () => {
  test("go a week after they were closed, those of runs that did nothing after a day", async () => {
    const account = (workflowId: string, sent: number, closed: Date | null) =>
      db("runs").insert({
        workflow_id: workflowId,
        first_run_id: "r",
        lease_until: new Date(),
        sent,
        closed,
      });
    await account("busy, long ago", 1, daysAgo(7.1));
    await account("busy", 1, daysAgo(6.9));
    await account("empty, long ago", 0, daysAgo(1.1));
    await account("empty", 0, daysAgo(0.9));
    await account("open", 0, null);
    await db.raw(
      `insert into runs (workflow_id, first_run_id, lease_until, closed)
        select 'many', n::text, now(), now() - interval '2 days' from generate_series(1, 1000) n`,
    );
    expect((await retain()).map(({ runs }) => runs)).toEqual([1_000, 2]);
    expect(await db("runs").orderBy("id").pluck("workflow_id")).toEqual(["busy", "empty", "open"]);
  });

  test("go with their groups", async () => {
    const { runId } = await freshClaimant(db);
    await db("run_groups").insert({ run_id: runId, webhook_id: 1, group_number: 1 });
    await db("runs")
      .where({ id: runId })
      .update({ closed: daysAgo(2) });
    expect((await retain()).map(({ runs }) => runs)).toEqual([1]);
    expect(await db("run_groups").pluck("group_number")).toEqual([]);
  });
});
