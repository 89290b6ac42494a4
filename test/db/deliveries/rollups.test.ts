import { expect, test } from "vitest";
import { rows } from "../../../src/db/database.ts";
import {
  countsSince,
  deleteOldRollups,
  foldDeltas,
  LATENCY_BOUNDS_MS,
} from "../../../src/db/deliveries/rollups.ts";
import { readHistory, readOverview, webhookStats } from "../../../src/db/deliveries/stats.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { storeDeliveries } from "../../support/stored-deliveries.ts";
import { expectStatistics } from "../queue/model/invariants.ts";
import { claim, foldAll, NO_WAIT, openQueueDatabase, queue, record, result } from "../queue/queue.ts";

const HOUR_MS = 3_600_000;

const db = await openQueueDatabase();

/** Ended deliveries of the last two days, away from the edges of what readers ask for, and six attempts; a delta each. */
async function manyEnded(deliveries: number): Promise<void> {
  const webhooks = [await queue(db, 3), await queue(db, 3)];
  const now = Date.now();
  const states = ["delivered", "failed", "cancelled", "delivered"] as const;
  await storeDeliveries(
    db,
    Array.from({ length: deliveries }, (_, n) => {
      const hoursAgo = 0.5 + (n % 40);
      const at = new Date(now - (hoursAgo > 22 && hoursAgo < 27 ? 21.5 : hoursAgo) * HOUR_MS);
      const webhookId = webhooks[n % 2] as bigint;
      return { webhookId, state: states[n % 4] ?? "delivered", created: at, finished: at };
    }),
  );
  for (const [n, delivery] of (await claim(db)).entries()) await record(db, [delivery], n % 2 ? 200 : 500);
}

/** Health is judged by folding, so that it alone changes. */
const HEALTH = { healthyWebhooks: 0n, degradedWebhooks: 0n, failingWebhooks: 0n };

async function whatReadersSee(end: Date) {
  const webhookIds = await db("webhooks").orderBy("id").pluck("id");
  return {
    overview: { ...(await readOverview(db, "everything")), ...HEALTH },
    webhooks: (await webhookStats(db, webhookIds)).webhooks,
    history: await readHistory(db, "everything", 24, end),
  };
}

test("folding changes nothing that readers see, step by step, also when other processes fold, and no delta is folded twice", async () => {
  await manyEnded(1_200);
  const end = new Date();
  const before = await whatReadersSee(end);
  expect(before.overview).toMatchObject({ attemptsLastDay: 6n, failed: 300n, cancelled: 300n });
  expect(before.overview.deliveredLastDay).toBeLessThan(603n);
  expect(before.webhooks).toHaveLength(2);
  expect(before.history.filter(({ delivered }) => delivered > 0n).length).toBeGreaterThan(10);
  expect(await foldDeltas(db)).toBe(500);
  expect(await whatReadersSee(end)).toEqual(before);
  let reading = true;
  const readers = [1, 2].map(async () => {
    while (reading) expect(await whatReadersSee(end)).toEqual(before);
  });
  let folded = 0;
  // A step that finds another process at it does nothing.
  while ((await db("rollup_deltas").limit(1)).length > 0)
    for (const step of await Promise.all([foldDeltas(db), foldDeltas(db)])) folded += step;
  reading = false;
  await Promise.all(readers);
  expect(folded).toBe(706);
  expect(await whatReadersSee(end)).toEqual(before);
});

test("a call of one process does nothing while another one folds", async () => {
  await manyEnded(10);
  const other = await db.transaction();
  await other.raw("select pg_advisory_xact_lock(7242110923)");
  expect(await foldDeltas(db)).toBe(0);
  await other.rollback();
  expect(await foldDeltas(db)).toBe(16);
});

test("results that are recorded while deltas are folded are counted once", async () => {
  for (let n = 0; n < 4; n += 1) await queue(db, 50);
  const deliveries = await claim(db);
  let recording = true;
  const folding = (async () => {
    while (recording) await foldDeltas(db);
  })();
  await Promise.all(deliveries.map((delivery, n) => record(db, [delivery], n % 2 ? 200 : 500)));
  recording = false;
  await folding;
  await expectStatistics(db);
  await foldAll(db);
  await expectStatistics(db);
});

test("attempts are counted by how long they took, each in the class of its duration, and no class is empty by its bounds", async () => {
  const durations = [0, 1, 2, 15, 16, 999, 11_585, 11_586, 1_000_000];
  await queue(db, durations.length);
  for (const [n, delivery] of (await claim(db)).entries()) {
    const durationMs = durations[n] as number;
    await recordAttempts(db, [{ ...result(delivery, 200), durationMs }], NO_WAIT);
    // In steps: classes of several foldings are added up.
    await foldDeltas(db);
  }
  const [all] = await db("rollup_hours").where({ webhook_id: 0 }).pluck<number[][]>("latency");
  const bounds = [...LATENCY_BOUNDS_MS, Number.POSITIVE_INFINITY];
  const lower = (n: number) => bounds[n - 1] ?? 0;
  expect(all).toEqual(
    bounds.map((upper, n) => durations.filter((ms) => ms >= lower(n) && ms < upper).length),
  );
  expect(bounds.filter((upper, n) => upper <= lower(n))).toEqual([]);
});

test("minutes go once their hours are enough, and hours with the deliveries that they count", async () => {
  const webhookId = await queue(db, 0);
  // In the middle of an hour, so that none of them is at an edge.
  const at = (hoursAgo: number) => new Date((Math.floor(Date.now() / HOUR_MS) - hoursAgo + 0.5) * HOUR_MS);
  await storeDeliveries(
    db,
    [1, 24, 28, 48, 100].map((hours) => {
      const ended = { state: "delivered" as const, created: at(hours), finished: at(hours) };
      return { webhookId, ...ended };
    }),
  );
  await foldDeltas(db);
  await deleteOldRollups(db, at(72));
  const left = (table: string) => db(table).where({ webhook_id: 0 }).orderBy("start", "desc").pluck("start");
  expect(await left("rollup_minutes")).toEqual(
    await db("deliveries").orderBy("finished", "desc").limit(2).pluck("finished"),
  );
  expect(await left("rollup_hours")).toHaveLength(4);
});

test("one step folds the attempts of ten thousand webhooks", async () => {
  await db.raw(
    `insert into rollup_deltas (minute, webhook_ids, changes, durations_ms)
      select date_trunc('minute', now()), array_agg(n), array_agg(0::smallint), array_agg(n % 900)
      from generate_series(1, 10000) n group by n / 100`,
  );
  expect(await foldDeltas(db)).toBe(101);
  const [minutes] = await rows(
    db,
    `select count(*)::int as webhooks, sum(failed_attempts)::int as attempts,
        sum((select sum(n) from unnest(latency) n))::int as classes
      from rollup_minutes where webhook_id > 0`,
  );
  expect(minutes).toEqual({ webhooks: 10_000, attempts: 10_000, classes: 10_000 });
});

test("in minutes and hours that version 0.2.0 counted, attempts that did not deliver count as failed", async () => {
  await queue(db, 6);
  const deliveries = await claim(db);
  await record(db, deliveries.slice(0, 1), 200);
  await record(db, deliveries.slice(1, 3), 500);
  await foldDeltas(db);
  // It has no such column, and leaves it out.
  for (const table of ["rollup_minutes", "rollup_hours"]) await db(table).update({ failed_attempts: null });
  const counted = () =>
    rows(
      db,
      `select sum(attempts)::int as attempts, sum(failed_attempts)::int as failed
        from (${countsSince("minute", "true", "true")}) c where webhook_id = 0`,
    );
  expect(await counted()).toEqual([{ attempts: 3, failed: 2 }]);
  await record(db, deliveries.slice(3), 500);
  await foldDeltas(db);
  expect(await counted()).toEqual([{ attempts: 6, failed: 5 }]);
});
