import { randomUUID } from "node:crypto";
import type { Knex } from "knex";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { count, openDatabase, rows } from "../../../src/db/database.ts";
import { type RetentionStep, retentionStep } from "../../../src/db/deliveries/retention.ts";
import { sendAgain } from "../../../src/db/deliveries/send-again.ts";
import { readOverview } from "../../../src/db/deliveries/stats.ts";
import { publishEvents } from "../../../src/db/events/publish.ts";
import {
  ensurePartitions,
  listPartitions,
  PARTITIONED,
  type Partitioned,
} from "../../../src/db/partitions.ts";
import { waitingQueries } from "../../support/grpc-calls.ts";
import { anEvent } from "../../support/new-event.ts";
import { idAt, type Stored, storeDeliveries } from "../../support/stored-deliveries.ts";
import { claim, foldAll, openQueueDatabase, queue, record } from "../queue/queue.ts";

const DAY_MS = 86_400_000;
/** Partitions are dropped a week later. */
const RETENTION_DAYS = 30;

const db = await openQueueDatabase();
/** Only partitions of the past are dropped: the others take a tenth of a second to create. */
beforeEach(async () => {
  const [past] = await rows<{ names: string | null }>(
    db,
    `select string_agg(relname, ', ') as names from pg_class
      where relkind = 'r' and relname ~ '^(${PARTITIONED.join("|")})_[0-9]+_[0-9]+$'
        and substring(relname from '_([0-9]+)_[0-9]+$') < to_char(now() - interval '1 day', 'YYYYMMDD')`,
  );
  if (past?.names) await db.raw(`drop table ${past.names}`);
  await ensurePartitions(db, RETENTION_DAYS);
});

/** A transaction of somebody else, with a statement; ended with the test. */
async function begin(sql: string): Promise<Knex.Transaction> {
  const other = await db.transaction();
  onTestFinished(async () => {
    if (!other.isCompleted()) await other.rollback();
  });
  await other.raw(sql);
  return other;
}

/** Locks a partition as VACUUM and CREATE INDEX CONCURRENTLY do. */
const maintain = (partition: string) => begin(`lock table ${partition} in share update exclusive mode`);

const daysAgo = (days: number) => new Date(Date.now() - days * DAY_MS);

/** An event of a moment, under the idempotency key `key`, with a delivery: delivered at once unless given. */
async function storeEvent(created: Date, delivery: Partial<Stored> = {}, key: string = randomUUID()) {
  const [eventId, apiKeyId] = [idAt(created), randomUUID()];
  const delivered = { state: "delivered", attempts: 1, finished: created, webhookId: 1n } as const;
  const [deliveryId = ""] = await storeDeliveries(db, [{ ...delivered, created, eventId, ...delivery }]);
  const ids = { api_key_id: apiKeyId, idempotency_key: key };
  const event = { ...ids, id: eventId, process: 1, user_id: "u", occurred: created, recipients: 1 };
  await db("events").insert({ ...event, payload: "{}" });
  await db("idempotency_keys").insert({ ...ids, event_id: eventId, request_sha256: Buffer.alloc(32) });
  return { eventId, apiKeyId, deliveryId };
}

/** So many events of a moment, with their idempotency keys. */
async function storeKeys(created: Date, events: number): Promise<void> {
  await db.raw(
    `with e as (
        insert into events (id, api_key_id, idempotency_key, process, user_id, occurred)
        select overlay(?::text placing lpad(n::text, 12, '0') from 25)::uuid, gen_random_uuid(), n, 1, 'u', now()
        from generate_series(1, ?::int) n returning id, api_key_id, idempotency_key
      )
      insert into idempotency_keys (event_id, api_key_id, idempotency_key, request_sha256)
      select id, api_key_id, idempotency_key, '\\x00' from e`,
    [idAt(created, 0), events],
  );
}

/** Steps until nothing is left to do. */
async function retain(on = db): Promise<RetentionStep[]> {
  const steps: RetentionStep[] = [];
  for (;;) {
    const step = await retentionStep(on, on, RETENTION_DAYS);
    if (step.expired + step.keys + step.runs + step.partitions.length === 0) return steps;
    steps.push(step);
  }
}

const retainAndDrop = async () => (await retain()).flatMap(({ partitions }) => partitions);

/** The partition of a day. */
function partitionOf(table: Partitioned, created: Date): string {
  const day = (at: number) => new Date(at).toISOString().slice(0, 10).replaceAll("-", "");
  return `${table}_${day(created.getTime())}_${day(created.getTime() + DAY_MS)}`;
}

const allPartitionsOf = (created: Date) => PARTITIONED.map((table) => partitionOf(table, created));

/** The partitions of a day that are attached. */
async function attachedOf(created: Date): Promise<string[]> {
  const attached = (await Promise.all(PARTITIONED.map((table) => listPartitions(db, table)))).flat();
  return attached.map(({ name }) => name).filter((name) => allPartitionsOf(created).includes(name));
}

const isThere = (table: string) =>
  rows(db, "select where to_regclass(:table) is not null", { table }).then(({ length }) => length === 1);

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

describe("payloads", () => {
  const PAYLOAD_DAYS = 3;
  /** A step with another number of days for payloads; answers the events that it looked at. */
  const eraseStep = async (days = PAYLOAD_DAYS) =>
    (await retentionStep(db, db, RETENTION_DAYS, days)).payloads;
  /** Looks until nothing is left to look at. */
  async function erase(): Promise<number> {
    let looked = 0;
    for (let step = await eraseStep(); step > 0; step = await eraseStep()) looked += step;
    return looked;
  }
  /** Whether payloads, excerpts of responses and search terms are still there, by the age of the events. */
  const kept = () =>
    rows(
      db,
      `select e.payload is not null as payload, d.response_start is not null and d.response_headers is not null as response,
          a.response_start is not null and a.response_headers is not null as attempt,
          exists (select from search_terms s where s.event_id = e.id) as terms
        from events e join attempts a on a.delivery_id = e.id left join deliveries d on d.id = e.id order by e.id`,
    );
  const ALL = { payload: true, response: true, attempt: true, terms: true };
  const NONE = { payload: false, response: false, attempt: false, terms: false };

  /** An event with a delivery of its id, an earlier attempt, excerpts of its responses, and a search term. */
  async function storeWithExcerpts(created: Date, delivery: Partial<Stored> = {}): Promise<string> {
    const id = idAt(created);
    const excerpts = { response_start: "the payload", response_headers: "[]" };
    const { eventId } = await storeEvent(created, { id, eventId: id, ...delivery });
    await db("events").where({ id: eventId }).update({ id });
    await db("deliveries").where({ id }).update(excerpts);
    const attempt = { delivery_id: id, number: 1, started: created, duration_ms: 1 };
    await db("attempts").insert({ ...attempt, ...excerpts });
    await db("search_terms").insert({ term: 1, event_id: id });
    return id;
  }

  test("are erased after PAYLOAD_RETENTION_DAYS with what may repeat them, and everything else stays", async () => {
    for (const days of [5, 4, 2]) await storeWithExcerpts(daysAgo(days));
    // Without PAYLOAD_RETENTION_DAYS.
    await retain();
    expect(await kept()).toEqual([ALL, ALL, ALL]);
    expect(await erase()).toBe(2);
    expect(await kept()).toEqual([NONE, NONE, ALL]);
    expect(await db("deliveries").pluck("outcome")).toEqual(["delivered", "delivered", "delivered"]);
    // What was looked at is not looked at again.
    expect(await erase()).toBe(0);
  });

  test("of an event with an open delivery are kept until it has ended; payloads of other events of its day are erased", async () => {
    const noon = daysAgo(5).setUTCHours(12, 0, 0, 0);
    await storeWithExcerpts(daysAgo(6.5));
    await storeWithExcerpts(new Date(noon));
    await storeWithExcerpts(new Date(noon + 1), { state: "retrying" });
    await storeWithExcerpts(new Date(noon + 2));
    await storeWithExcerpts(daysAgo(3.5));
    expect(await erase()).toBe(5);
    const open = { ...ALL, response: false };
    expect(await kept()).toEqual([NONE, NONE, open, NONE, NONE]);
    expect(await erase()).toBe(0);
    // Fewer days, and then more: what had to stay is not forgotten.
    expect(await eraseStep(20)).toBe(0);
    await db("retries").delete();
    expect(await eraseStep(20)).toBe(0);
    expect(await erase()).toBeGreaterThan(0);
    expect(await kept()).toEqual(Array(5).fill(NONE));
    expect(await erase()).toBe(0);
    expect(await db("settings").whereLike("name", "payloads_kept%")).toEqual([]);
  });

  test("of an event with a delivery that is being sent again stay until it has ended", async () => {
    const webhookId = await queue(db, 0);
    const { deliveryId } = await storeEvent(daysAgo(5), { webhookId });
    const payloads = () => db("events").whereNotNull("payload").pluck("user_id");
    const sending = await begin("select");
    await sendAgain(sending, "everything", deliveryId, RETENTION_DAYS);
    const erased = erase();
    await expect.poll(() => waitingQueries({ context: { db } })).toBe(1);
    await sending.commit();
    expect([await erased, await payloads()]).toEqual([1, ["u"]]);
    await db("queue").where("id", deliveryId).delete();
    expect([await erase(), await payloads()]).toEqual([1, []]);
  });
});

describe("statistics", () => {
  test("count what the log still has: hours go no sooner than the deliveries that they count", async () => {
    const webhookId = await queue(db, 0);
    // The first minute of the day of which the last minute is to be kept.
    const boundary = daysAgo(RETENTION_DAYS + 7).getTime();
    const created = new Date(boundary - (boundary % DAY_MS));
    const { deliveryId } = await storeEvent(created, { webhookId, state: "failed" });
    await foldAll(db);
    await retain();
    expect(await db("deliveries").pluck("outcome")).toEqual(["failed"]);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 1n });
    await sendAgain(db, "everything", deliveryId, RETENTION_DAYS + 10);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 0n, pending: 1n });
  });

  test("no longer count deliveries of a dropped partition that ended after its time, each once", async () => {
    const [created, late] = [daysAgo(40), daysAgo(8)];
    const webhookId = await queue(db, 0);
    await storeEvent(created, { webhookId, state: "failed" });
    for (const state of ["failed", "cancelled", "filtered"] as const)
      await storeEvent(created, { webhookId, state, finished: late });
    // Of the same hour, and still stored.
    await storeEvent(late, { webhookId, state: "failed" });
    await foldAll(db);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 3n, cancelled: 1n, filtered: 1n });
    const vacuum = await maintain(partitionOf("deliveries", created));
    expect(await retainAndDrop()).toEqual([]);
    await vacuum.commit();
    expect(await retainAndDrop()).toHaveLength(PARTITIONED.length);
    expect(await db("deliveries").pluck("outcome")).toEqual(["failed"]);
    expect(await readOverview(db, "everything")).toMatchObject({ failed: 1n, cancelled: 0n, filtered: 0n });
    expect(await db("rollup_hours").orderBy("webhook_id").pluck("failed")).toEqual([1, 1]);
  });
});

test("accounts of runs are deleted a week after they closed, accounts of runs that did nothing after a day, with their groups", async () => {
  const account = (name: string, sent: number, closed: Date | null) =>
    db("runs").insert({ workflow_id: name, first_run_id: "r", lease_until: new Date(), sent, closed });
  await account("busy, long ago", 1, daysAgo(7.1));
  await account("busy", 1, daysAgo(6.9));
  await account("empty, long ago", 0, daysAgo(1.1));
  await account("empty", 0, daysAgo(0.9));
  await account("open", 0, null);
  await db.raw(
    `insert into runs (workflow_id, first_run_id, lease_until, closed)
      select 'many', n::text, now(), now() - interval '2 days' from generate_series(1, 1000) n`,
  );
  await db.raw("insert into run_groups (run_id, webhook_id, group_number) select id, 1, 1 from runs");
  expect((await retain()).map(({ runs }) => runs)).toEqual([1_000, 2]);
  expect(await db("runs").orderBy("id").pluck("workflow_id")).toEqual(["busy", "empty", "open"]);
  expect(await db("run_groups").orderBy("run_id").pluck("run_id")).toEqual(
    await db("runs").orderBy("id").pluck("id"),
  );
});
