import { randomUUID } from "node:crypto";
import { afterAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { type Db, rows } from "../../src/lib/pg/database.ts";
import {
  ensurePartitions,
  firstIdOf,
  listPartitions,
  PARTITIONED,
  type Range,
  rangeFor,
  timeOfId,
} from "../../src/schema/partitions.ts";
import { openQueueDatabase } from "../queue/queue.ts";
import { databaseTime } from "../support/database-time.ts";
import { idAt } from "../support/stored-deliveries.ts";
import { DAY_MS, DAYS, dayOf, dropAll, holds, MONTHS, orderly, weekFrom } from "./partition-parts.ts";

const db = await openQueueDatabase();
let now: number;
// Files of the same worker need them.
afterAll(() => ensurePartitions(db, DAYS));

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
    await dropAll(db);
    await ensurePartitions(db, DAYS);
    now = (await databaseTime(db)).getTime();
  });

  test("a week ahead, each of a day, for every table of deliveries and events", async () => {
    for (const partitions of await orderly(db, weekFrom(now)))
      for (const { from, to } of partitions) expect({ from, to }).toEqual(dayOf(from.getTime()));
    expect(await ensurePartitions(db, DAYS)).toBe(0);
  });

  test("of a month with a long retention, cut where days begin and end, and of days again after a change back", async () => {
    const moments = [20, 50, 80, 110, -1, -40].map((days) => now + days * DAY_MS);
    const dates = (some: number[]) => some.map((moment) => new Date(moment));
    await ensurePartitions(db, MONTHS, dates(moments));
    const [events = []] = await orderly(db, [...moments, ...weekFrom(now)]);
    const { from, to } = events.find((range) => holds([range], now + 80 * DAY_MS)) as Range;
    expect([from.getUTCDate(), to.getUTCDate()]).toEqual([1, 1]);
    const later = now + 200 * DAY_MS;
    await ensurePartitions(db, DAYS, dates([later, now + 80 * DAY_MS]));
    for (const partitions of await orderly(db, [...moments, later]))
      expect(partitions).toContainEqual(expect.objectContaining(dayOf(later)));
  });

  test("once, however many processes make them at the same time", async () => {
    await dropAll(db);
    const retentions = [DAYS, DAYS, DAYS, MONTHS, DAYS];
    const made = await Promise.all(retentions.map((days) => ensurePartitions(db, days)));
    const there = (await orderly(db, weekFrom(now))).flat().length;
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
