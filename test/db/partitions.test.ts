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
import { claimPending } from "../../src/db/queue/claims.ts";
import { recordAttempts } from "../../src/db/queue/results.ts";
import { anEvent } from "../support/new-event.ts";
import { idAt } from "../support/stored-deliveries.ts";
import {
  ALL,
  databaseTime,
  freshClaimant,
  openQueueDatabase,
  queue,
  result,
  SPACING,
} from "./queue/queue.ts";

const DAY_MS = 86_400_000;
/** Retentions with which partitions are days and months. */
const [DAYS, MONTHS] = [90, 91];

const db = await openQueueDatabase();
beforeEach(async () => {
  await dropAll(...PARTITIONED);
  await ensurePartitions(db, DAYS);
});

async function dropAll(...tables: Partitioned[]): Promise<void> {
  const all = (await Promise.all(tables.map((table) => listPartitions(db, table)))).flat();
  if (all.length > 0) await db.raw(`drop table ${all.map(({ name }) => name).join(", ")}`);
}

const midnight = (ms: number) => ms - (ms % DAY_MS);

/** The partitions of a table, once it is sure that they are in order and none overlaps another. */
async function orderly(table: Partitioned): Promise<Range[]> {
  const partitions = await listPartitions(db, table);
  for (const [n, { from, to }] of partitions.entries()) {
    expect(from.getTime()).toBeLessThan(to.getTime());
    expect(from.getTime()).toBeGreaterThanOrEqual(partitions[n - 1]?.to.getTime() ?? 0);
    for (const bound of [from, to]) expect(bound.getTime() % DAY_MS).toBe(0);
  }
  return partitions;
}

const holds = (ranges: readonly Range[], moment: number) =>
  ranges.some(({ from, to }) => from.getTime() <= moment && moment < to.getTime());

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
  test("a week ahead, each of a day, for every table of deliveries and events", async () => {
    const now = await databaseTime(db);
    for (const table of PARTITIONED) {
      const partitions = await orderly(table);
      expect(partitions.length).toBeGreaterThanOrEqual(8);
      for (let day = 0; day <= 7; day += 1) expect(holds(partitions, now + day * DAY_MS)).toBe(true);
      expect(partitions.every(({ from, to }) => to.getTime() - from.getTime() === DAY_MS)).toBe(true);
    }
    expect(await ensurePartitions(db, DAYS)).toBe(0);
  });

  test("of a month with a long retention, cut where days begin and end", async () => {
    const now = await databaseTime(db);
    const later = [20, 50, 80, 110].map((days) => now + days * DAY_MS);
    const earlier = [-1, -40].map((days) => now + days * DAY_MS);
    await ensurePartitions(
      db,
      MONTHS,
      [...later, ...earlier].map((moment) => new Date(moment)),
    );
    for (const table of PARTITIONED) {
      const partitions = await orderly(table);
      for (const moment of [...later, ...earlier, now, now + 7 * DAY_MS])
        expect(holds(partitions, moment)).toBe(true);
      expect(partitions.length).toBeLessThan(8 + 8);
      // A whole month, from its first to the first of the next one.
      const { from, to } = partitions.find((range) => holds([range], now + 80 * DAY_MS)) as Range;
      expect([from.getUTCDate(), to.getUTCDate()]).toEqual([1, 1]);
      expect(to.getTime() - from.getTime()).toBeGreaterThanOrEqual(28 * DAY_MS);
    }
  });

  test("of days again after a change back, where no month is", async () => {
    const now = await databaseTime(db);
    await ensurePartitions(db, MONTHS, [new Date(now + 50 * DAY_MS)]);
    const { from, to } = (await listPartitions(db, "events")).at(-1) as Range;
    const beside = [from.getTime() - 1, to.getTime()];
    await ensurePartitions(
      db,
      DAYS,
      [...beside, now + 50 * DAY_MS].map((moment) => new Date(moment)),
    );
    for (const table of PARTITIONED) {
      const partitions = await orderly(table);
      expect(partitions).toContainEqual(expect.objectContaining({ from, to }));
      for (const moment of beside)
        expect(partitions).toContainEqual(
          expect.objectContaining({
            from: new Date(midnight(moment)),
            to: new Date(midnight(moment) + DAY_MS),
          }),
        );
    }
  });

  test("once, however many processes make them at the same time", async () => {
    await dropAll(...PARTITIONED);
    const made = await Promise.all(
      [DAYS, DAYS, DAYS, MONTHS, DAYS].map((days) => ensurePartitions(db, days)),
    );
    const now = await databaseTime(db);
    let there = 0;
    for (const table of PARTITIONED) {
      const partitions = await orderly(table);
      there += partitions.length;
      for (let day = 0; day <= 7; day += 1) expect(holds(partitions, now + day * DAY_MS)).toBe(true);
    }
    expect(made.reduce((sum, n) => sum + n, 0)).toBe(there);
  });

  test("while others read and write: nobody waits for anybody", async () => {
    await queue(db, 1);
    const other = await db.transaction();
    // Also when the test fails: an open transaction would hold up all tests after it.
    onTestFinished(async () => {
      await other.rollback();
    });
    for (const table of PARTITIONED) await other.raw(`select count(*) from ${table}`);
    await insertEvent(other, idAt(new Date()));
    const far = new Date((await databaseTime(db)) + 300 * DAY_MS);
    expect(await ensurePartitions(db, DAYS, [far])).toBe(PARTITIONED.length);
  });

  test("with every index of their table", async () => {
    for (const table of PARTITIONED) {
      const parents = await rows(
        db,
        `select count(*)::int as n from pg_index where indrelid = :table::text::regclass`,
        { table },
      );
      const [{ name }] = (await listPartitions(db, table)) as unknown as [{ name: string }];
      const own = await rows(
        db,
        `select count(*)::int as n from pg_index i join pg_inherits h on h.inhrelid = i.indexrelid
          where i.indrelid = :name::text::regclass and indisvalid`,
        { name },
      );
      expect(own).toEqual(parents);
    }
  });
});

describe("a row whose partition is missing", () => {
  test("of an event is stored: its partition is made", async () => {
    await queue(db, 0);
    await dropAll(...PARTITIONED);
    const published = await publishEvents(db, [anEvent(), anEvent()]);
    expect(published).toMatchObject([
      { queued: 1, duplicate: false },
      { queued: 1, duplicate: false },
    ]);
    expect(await db("events").pluck("id")).toHaveLength(2);
    for (const table of PARTITIONED) expect((await orderly(table)).length).toBeGreaterThanOrEqual(8);
  });

  test("of a test event is stored, too", async () => {
    const webhookId = await queue(db, 0);
    await dropAll(...PARTITIONED);
    const made = { apiKeyId: randomUUID(), webhookId, process: 1, payload: "{}" };
    expect(await queueTestEvent(db, "everything", made)).not.toBeNull();
    expect(await db("events").pluck("test")).toEqual([true]);
  });

  test("of the log, or an attempt, is stored, too, and each once", async () => {
    await queue(db, 2);
    const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
    const [ended, waits] = deliveries.map((delivery, n) => result(delivery, n === 0 ? 200 : 500));
    for (const [table, outcome] of [
      ["deliveries", ended],
      ["attempts", waits],
    ] as const) {
      await dropAll(table);
      expect((await recordAttempts(db, [outcome as never], SPACING)).size).toBe(1);
      expect(await db(table).select()).toHaveLength(1);
    }
  });

  test("of many publishers at once is stored, and none gets an error", async () => {
    await queue(db, 0);
    await dropAll(...PARTITIONED);
    const published = await Promise.all(
      Array.from({ length: 8 }, () => publishEvents(db, [anEvent(), anEvent()])),
    );
    expect(published.flat()).toEqual(Array(16).fill(expect.objectContaining({ queued: 1 })));
    expect(await db("events").pluck("id")).toHaveLength(16);
    for (const table of PARTITIONED) await orderly(table);
  });

  test("fails its transaction, which only the caller can repeat", async () => {
    await queue(db, 0);
    await dropAll(...PARTITIONED);
    const failed = await db
      .transaction((trx) => publishEvents(trx, [anEvent()]))
      .catch((error: unknown) => error);
    expect(isMissingPartition(failed)).toBe(true);
    expect(isMissingPartition(new Error("another"))).toBe(false);
  });
});

describe("a range", () => {
  const at = (text: string) => new Date(`${text}Z`);
  const range = (from: string, to: string) => ({ from: at(`${from}T00:00`), to: at(`${to}T00:00`) });

  test("is the day or the month of a moment, in UTC", () => {
    const moment = at("2028-02-29T23:59:59.999");
    expect(rangeFor(moment, [], DAYS)).toEqual(range("2028-02-29", "2028-03-01"));
    expect(rangeFor(moment, [], MONTHS)).toEqual(range("2028-02-01", "2028-03-01"));
    expect(rangeFor(at("2028-12-01T00:00"), [], MONTHS)).toEqual(range("2028-12-01", "2029-01-01"));
  });

  test("ends where the next one begins, and begins where the one before ends", () => {
    const others = [range("2028-02-03", "2028-02-04"), range("2028-02-20", "2028-02-21")];
    expect(rangeFor(at("2028-02-10T12:00"), others, MONTHS)).toEqual(range("2028-02-04", "2028-02-20"));
    expect(rangeFor(at("2028-02-02T12:00"), others, MONTHS)).toEqual(range("2028-02-01", "2028-02-03"));
    expect(rangeFor(at("2028-02-21T00:00"), others, MONTHS)).toEqual(range("2028-02-21", "2028-03-01"));
  });

  test("holds its moment and overlaps no other, in whatever order days and months come", () => {
    const moments = fc.date({
      min: at("2027-12-01T00:00"),
      max: at("2028-04-30T00:00"),
      noInvalidDate: true,
    });
    fc.assert(
      fc.property(fc.array(fc.tuple(moments, fc.boolean()), { maxLength: 60 }), (wanted) => {
        const ranges: Range[] = [];
        for (const [moment, daily] of wanted) {
          if (holds(ranges, moment.getTime())) continue;
          const next = rangeFor(moment, ranges, daily ? DAYS : MONTHS);
          expect(holds([next], moment.getTime())).toBe(true);
          expect(ranges.filter(({ from, to }) => from < next.to && next.from < to)).toEqual([]);
          ranges.push(next);
        }
      }),
    );
  });
});

describe("an id", () => {
  test("sorts by its time, so that the primary keys serve as the index and partitions hold a span of time", async () => {
    const before = await databaseTime(db);
    const [made] = await rows<{ event: string; next: string; delivery: string; time: Date }>(
      db,
      `select e.id as event, new_event_id() as next, new_delivery_id(e.id) as delivery, time_of_id(e.id) as time
        from (select new_event_id() as id offset 0) e`,
    );
    const { event, next, delivery, time } = made as NonNullable<typeof made>;
    const after = await databaseTime(db);
    expect(event > firstIdOf(new Date(before - 1))).toBe(true);
    expect(event < firstIdOf(new Date(after + 1))).toBe(true);
    expect(next > event).toBe(true);
    expect(time.getTime()).toBe(timeOfId(event).getTime());
    expect(timeOfId(delivery)).toEqual(timeOfId(event));
    expect(delivery).not.toBe(event);
    expect(firstIdOf(timeOfId(event)) <= event).toBe(true);
    expect(timeOfId(firstIdOf(time))).toEqual(time);
  });

  test("of the last millisecond of a day is in that day's partition, of the next one in the next", async () => {
    const [, second] = await listPartitions(db, "events");
    const first = firstIdOf(second?.from as Date);
    const last = `${firstIdOf(new Date(timeOfId(first).getTime() - 1)).slice(0, 13)}-ffff-ffff-ffffffffffff`;
    await insertEvent(db, last);
    await insertEvent(db, first);
    const found = await rows<{ place: string }>(
      db,
      "select tableoid::regclass::text as place from events order by id",
    );
    const names = (await listPartitions(db, "events")).map(({ name }) => name);
    expect(found.map(({ place }) => place)).toEqual(names.slice(0, 2));
  });
});
