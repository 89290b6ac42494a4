import { randomUUID } from "node:crypto";
import fc from "fast-check";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
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
import { databaseTime } from "../support/database-time.ts";
import { anEvent } from "../support/new-event.ts";
import { idAt } from "../support/stored-deliveries.ts";
import { claim, openQueueDatabase, queue, record } from "./queue/queue.ts";

const DAY_MS = 86_400_000;
/** Retentions with which partitions are days and months. */
const [DAYS, MONTHS] = [90, 91];

const db = await openQueueDatabase();
let now: number;
/** Begins each test of a group with the partitions of a week. */
const withPartitionsOfDays = () =>
  beforeEach(async () => {
    await dropAll();
    await ensurePartitions(db, DAYS);
    now = (await databaseTime(db)).getTime();
  });

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
  withPartitionsOfDays();

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
    expect(events.length).toBeLessThan(8 + 8);
    // A whole month, from its first to the first of the next one.
    const { from, to } = events.find((range) => holds([range], now + 80 * DAY_MS)) as Range;
    expect([from.getUTCDate(), to.getUTCDate()]).toEqual([1, 1]);
    expect(to.getTime() - from.getTime()).toBeGreaterThanOrEqual(28 * DAY_MS);
    const later = now + 200 * DAY_MS;
    await ensurePartitions(db, DAYS, dates([later, now + 80 * DAY_MS]));
    for (const partitions of await orderly([...moments, later])) {
      expect(partitions).toContainEqual(expect.objectContaining({ from, to }));
      expect(partitions).toContainEqual(expect.objectContaining(dayOf(later)));
    }
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

  test("of a test event is stored, too", async () => {
    const webhookId = await queue(db, 0);
    await dropAll();
    const made = { apiKeyId: randomUUID(), webhookId, process: 1, payload: "{}" };
    expect(await queueTestEvent(db, "everything", made)).not.toBeNull();
    expect(await db("events").pluck("test")).toEqual([true]);
  });

  test.each([
    ["the log", "deliveries", 200],
    ["an attempt", "attempts", 500],
  ] as const)("of %s is stored, too, and once", async (_what, table, status) => {
    await queue(db, 1);
    const deliveries = await claim(db);
    await dropAll([table]);
    expect((await record(db, deliveries, status)).size).toBe(1);
    expect(await db(table)).toHaveLength(1);
  });

  test("fails its transaction, which only the caller can repeat", async () => {
    await dropAll();
    const failed = await db
      .transaction((trx) => publishEvents(trx, [anEvent()]))
      .catch((error: unknown) => error);
    expect([isMissingPartition(failed), isMissingPartition(new Error("another"))]).toEqual([true, false]);
  });
});

describe("a range", () => {
  const at = (text: string) => new Date(`${text}Z`);
  const range = (from: string, to: string) => ({ from: at(`${from}T00:00`), to: at(`${to}T00:00`) });
  const others = [range("2028-02-03", "2028-02-04"), range("2028-02-20", "2028-02-21")];

  test.each([
    ["is the day of a moment, in UTC", "2028-02-29T23:59:59.999", [], DAYS, "2028-02-29", "2028-03-01"],
    ["is the month of a moment", "2028-02-29T23:59:59.999", [], MONTHS, "2028-02-01", "2028-03-01"],
    ["is the month of its first moment", "2028-12-01T00:00", [], MONTHS, "2028-12-01", "2029-01-01"],
    ["is cut by others on both sides", "2028-02-10T12:00", others, MONTHS, "2028-02-04", "2028-02-20"],
    ["ends where the next one begins", "2028-02-02T12:00", others, MONTHS, "2028-02-01", "2028-02-03"],
    ["begins where the one before ends", "2028-02-21T00:00", others, MONTHS, "2028-02-21", "2028-03-01"],
  ])("%s", (_what, moment, some, days, from, to) => {
    expect(rangeFor(at(moment), some, days)).toEqual(range(from, to));
  });

  test("holds its moment and overlaps no other, in whatever order days and months come", () => {
    const bounds = { min: at("2027-12-01T00:00"), max: at("2028-04-30T00:00") };
    const wanted = fc.tuple(fc.date({ ...bounds, noInvalidDate: true }), fc.constantFrom(DAYS, MONTHS));
    fc.assert(
      fc.property(fc.array(wanted, { maxLength: 60 }), (all) => {
        const ranges: Range[] = [];
        for (const [moment, days] of all) {
          if (holds(ranges, moment.getTime())) continue;
          const next = rangeFor(moment, ranges, days);
          expect(holds([next], moment.getTime())).toBe(true);
          expect(ranges.filter(({ from, to }) => from < next.to && next.from < to)).toEqual([]);
          ranges.push(next);
        }
      }),
    );
  });
});

describe("an id", () => {
  withPartitionsOfDays();

  test("sorts by its time, so that the primary keys serve as the index and partitions hold a span of time", async () => {
    const [made] = await rows<{ event: string; next: string; delivery: string; time: Date }>(
      db,
      `select e.id as event, new_event_id() as next, new_delivery_id(e.id) as delivery, time_of_id(e.id) as time
        from (select new_event_id() as id offset 0) e`,
    );
    const { event, next, delivery, time } = made as NonNullable<typeof made>;
    const after = (await databaseTime(db)).getTime();
    expect([event > firstIdOf(new Date(now - 1)), event < firstIdOf(new Date(after + 1))]).toEqual([
      true,
      true,
    ]);
    expect(next > event).toBe(true);
    expect([timeOfId(event), timeOfId(delivery), timeOfId(firstIdOf(time))]).toEqual([time, time, time]);
    expect(delivery).not.toBe(event);
    expect(firstIdOf(time) <= event).toBe(true);
  });

  test("of the last millisecond of a day is in that day's partition, of the next one in the next", async () => {
    const [day, nextDay] = await listPartitions(db, "events");
    const first = firstIdOf(nextDay?.from as Date);
    const last = `${firstIdOf(new Date(timeOfId(first).getTime() - 1)).slice(0, 13)}-ffff-ffff-ffffffffffff`;
    await insertEvent(db, last);
    await insertEvent(db, first);
    const places = db("events").orderBy("id").select(db.raw("tableoid::regclass::text as place"));
    expect((await places).map(({ place }) => place)).toEqual([day?.name, nextDay?.name]);
  });
});
