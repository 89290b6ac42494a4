import { randomUUID } from "node:crypto";
import { afterAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { type Db, rows } from "../../src/db/database.ts";
import { publishEvents } from "../../src/db/events/publish.ts";
import { queueTestEvent } from "../../src/db/events/test-events.ts";
import {
  ensurePartitions,
  firstIdOf,
  isMissingPartition,
  listPartitions,
  PARTITIONED,
  type Partitioned,
  type Range,
  rangeFor,
  timeOfId,
} from "../../src/db/partitions.ts";
import type { ClaimedDelivery } from "../../src/db/queue/claims.ts";
import { databaseTime } from "../support/database-time.ts";
import { anEvent } from "../support/new-event.ts";
import { idAt } from "../support/stored-deliveries.ts";
import { claim, openQueueDatabase, queue, record } from "./queue/queue.ts";

const DAY_MS = 86_400_000;
/** Retentions with which partitions are days and months. */
const [DAYS, MONTHS] = [90, 91];

const db = await openQueueDatabase();
let now: number;
// Files of the same worker need them.
afterAll(() => ensurePartitions(db, DAYS));

async function dropAll(tables: readonly Partitioned[] = PARTITIONED): Promise<void> {
  const all = (await Promise.all(tables.map((table) => listPartitions(db, table)))).flat();
  if (all.length > 0) await db.raw(`drop table ${all.map(({ name }) => name).join(", ")}`);
}

const holds = (ranges: readonly Range[], moment: number) =>
  ranges.some(({ from, to }) => from.getTime() <= moment && moment < to.getTime());

/** The day of a moment. */
function dayOf(moment: number): Range {
  const from = moment - (moment % DAY_MS);
  return { from: new Date(from), to: new Date(from + DAY_MS) };
}

/** The partitions of each table, once it is sure that none overlaps another, that all hold the moments, and nothing but days. */
async function orderly(moments: readonly number[] = []): Promise<Range[][]> {
  const tables: Range[][] = [];
  for (const table of PARTITIONED) {
    const partitions = await listPartitions(db, table);
    for (const [n, { from, to }] of partitions.entries()) {
      expect(from.getTime()).toBeLessThan(to.getTime());
      expect(from.getTime()).toBeGreaterThanOrEqual(partitions[n - 1]?.to.getTime() ?? 0);
      for (const bound of [from, to]) expect(bound.getTime() % DAY_MS).toBe(0);
    }
    for (const moment of moments) expect(holds(partitions, moment)).toBe(true);
    tables.push(partitions);
  }
  return tables;
}

const week = () => [0, 1, 2, 3, 4, 5, 6, 7].map((day) => now + day * DAY_MS);

const insertEvent = (into: Db, id: string) =>
  into("events").insert({
    id,
    api_key_id: randomUUID(),
    idempotency_key: id,
    process: 1,
    user_id: "u",
    occurred: new Date(),
  });

describe("partitions are made", () => {
  beforeEach(async () => {
    await dropAll();
    await ensurePartitions(db, DAYS);
    now = (await databaseTime(db)).getTime();
  });

  test("a week ahead, each of a day, for every table of deliveries and events", async () => {
    for (const partitions of await orderly(week()))
      for (const { from, to } of partitions) expect({ from, to }).toEqual(dayOf(from.getTime()));
    expect(await ensurePartitions(db, DAYS)).toBe(0);
  });

  test("of a month with a long retention, cut where days begin and end, and of days again after a change back", async () => {
    const moments = [20, 50, 80, 110, -1, -40].map((days) => now + days * DAY_MS);
    const dates = (some: number[]) => some.map((moment) => new Date(moment));
    await ensurePartitions(db, MONTHS, dates(moments));
    const [events = []] = await orderly([...moments, ...week()]);
    const { from, to } = events.find((range) => holds([range], now + 80 * DAY_MS)) as Range;
    expect([from.getUTCDate(), to.getUTCDate()]).toEqual([1, 1]);
    const later = now + 200 * DAY_MS;
    await ensurePartitions(db, DAYS, dates([later, now + 80 * DAY_MS]));
    for (const partitions of await orderly([...moments, later]))
      expect(partitions).toContainEqual(expect.objectContaining(dayOf(later)));
  });

  test("once, however many processes make them at the same time", async () => {
    await dropAll();
    const retentions = [DAYS, DAYS, DAYS, MONTHS, DAYS];
    const made = await Promise.all(retentions.map((days) => ensurePartitions(db, days)));
    const there = (await orderly(week())).flat().length;
    expect(made.reduce((sum, n) => sum + n, 0)).toBe(there);
  });

  test("while others read and write: nobody waits for anybody", async () => {
    const other = await db.transaction();
    // Also when the test fails: an open transaction would hold up all tests after it.
    onTestFinished(async () => {
      await other.rollback();
    });
    for (const table of PARTITIONED) await other.raw(`select count(*) from ${table}`);
    await insertEvent(other, idAt(new Date()));
    expect(await ensurePartitions(db, DAYS, [new Date(now + 300 * DAY_MS)])).toBe(PARTITIONED.length);
  });

  test("with every index of their table", async () => {
    const missing = await rows(
      db,
      `select i.indexrelid::regclass from pg_partitioned_table p join pg_index i on i.indrelid = p.partrelid
        join pg_inherits t on t.inhparent = p.partrelid
        where not exists (
          select from pg_inherits h join pg_index o on o.indexrelid = h.inhrelid
          where h.inhparent = i.indexrelid and o.indrelid = t.inhrelid and o.indisvalid
        )`,
    );
    expect(missing).toEqual([]);
  });
});

describe("a row whose partition is missing", () => {
  beforeEach(async () => {
    await ensurePartitions(db, DAYS);
    now = (await databaseTime(db)).getTime();
  });

  test("of an event is stored, and of many publishers at once, and none gets an error: its partition is made", async () => {
    await queue(db, 0);
    await dropAll();
    const publishing = Array.from({ length: 8 }, () => publishEvents(db, [anEvent(), anEvent()]));
    const made = expect.objectContaining({ queued: 1, duplicate: false });
    expect((await Promise.all(publishing)).flat()).toEqual(Array(16).fill(made));
    expect(await db("events").pluck("id")).toHaveLength(16);
    await orderly(week());
  });

  test("of a test event, of the log or of an attempt is stored, too, and once", async () => {
    const webhookId = await queue(db, 2);
    const [one, other] = (await claim(db)) as [ClaimedDelivery, ClaimedDelivery];
    await dropAll(["deliveries", "attempts"]);
    expect((await record(db, [one], 200)).size).toBe(1);
    expect((await record(db, [other], 500)).size).toBe(1);
    for (const table of ["deliveries", "attempts"]) expect(await db(table)).toHaveLength(1);
    await dropAll();
    const made = { apiKeyId: randomUUID(), webhookId, process: 1, payload: "{}" };
    expect(await queueTestEvent(db, "everything", made)).not.toBeNull();
    expect(await db("events").pluck("test")).toEqual([true]);
  });

  test("fails its transaction, which only the caller can repeat", async () => {
    await dropAll();
    const failed = await db
      .transaction((trx) => publishEvents(trx, [anEvent()]))
      .catch((error: unknown) => error);
    expect([isMissingPartition(failed), isMissingPartition(new Error("another"))]).toEqual([true, false]);
  });
});

const at = (text: string) => new Date(`${text}Z`);
const range = (from: string, to: string) => ({ from: at(`${from}T00:00`), to: at(`${to}T00:00`) });
const others = [range("2028-02-03", "2028-02-04"), range("2028-02-20", "2028-02-21")];

test.each([
  ["is the day of a moment, in UTC", "2028-02-29T23:59:59.999", [], DAYS, "2028-02-29", "2028-03-01"],
  ["is the month of its first moment", "2028-12-01T00:00", [], MONTHS, "2028-12-01", "2029-01-01"],
  ["is cut by others on both sides", "2028-02-10T12:00", others, MONTHS, "2028-02-04", "2028-02-20"],
  ["ends where the next one begins", "2028-02-02T12:00", others, MONTHS, "2028-02-01", "2028-02-03"],
  ["begins where the one before ends", "2028-02-21T00:00", others, MONTHS, "2028-02-21", "2028-03-01"],
])("a range %s", (_what, moment, some, days, from, to) => {
  expect(rangeFor(at(moment), some, days)).toEqual(range(from, to));
});

test("an id sorts by its time, so that the primary keys serve as the index and partitions hold a span of time", async () => {
  const before = await databaseTime(db);
  const [made] = await rows<{ event: string; next: string; delivery: string; time: Date }>(
    db,
    `select e.id as event, new_event_id() as next, new_delivery_id(e.id) as delivery, time_of_id(e.id) as time
      from (select new_event_id() as id offset 0) e`,
  );
  const { event, next, delivery, time } = made as NonNullable<typeof made>;
  const after = new Date((await databaseTime(db)).getTime() + 1);
  const inOrder = [firstIdOf(before), firstIdOf(time), event, next, firstIdOf(after)];
  expect(inOrder).toEqual(inOrder.toSorted());
  expect(new Set([event, next, delivery]).size).toBe(3);
  expect([timeOfId(event), timeOfId(delivery), timeOfId(firstIdOf(time))]).toEqual([time, time, time]);
});

test("the last id of a day is in that day's partition, and the first of the next day in the next", async () => {
  await ensurePartitions(db, DAYS);
  const [day, nextDay] = await listPartitions(db, "events");
  const first = firstIdOf(nextDay?.from as Date);
  const last = `${firstIdOf(new Date(timeOfId(first).getTime() - 1)).slice(0, 13)}-ffff-ffff-ffffffffffff`;
  for (const id of [last, first]) await insertEvent(db, id);
  const places = db("events").orderBy("id").select(db.raw("tableoid::regclass::text as place"));
  expect((await places).map(({ place }) => place)).toEqual([day?.name, nextDay?.name]);
});
