import { expect, test } from "vitest";
import { rows } from "../../src/lib/pg/database.ts";
import { foldDeltas } from "../../src/maintenance/fold.ts";
import { recordAttempts } from "../../src/queue/results.ts";
import { countsSince, deleteOldRollups, LATENCY_BOUNDS_MS } from "../../src/stats/rollups.ts";
import { claim, foldAll, NO_WAIT, openQueueDatabase, queue, record, result } from "../queue/queue.ts";
import { expectRollups, expectStatistics } from "../queue/storage-model/invariants.ts";
import { storeDeliveries } from "../support/stored-deliveries.ts";

const HOUR_MS = 3_600_000;

const db = await openQueueDatabase();

test("a call of one process does nothing while another one folds", async () => {
  await queue(db, 3);
  for (const delivery of await claim(db)) await record(db, [delivery], 200);
  const other = await db.transaction();
  await other.raw("select pg_advisory_xact_lock(7242110923)");
  expect(await foldDeltas(db)).toBe(0);
  await other.rollback();
  expect(await foldDeltas(db)).toBe(3);
});

test("a step folds 500 deltas, and processes that fold at once fold each delta once", async () => {
  const webhookId = await queue(db, 0);
  await storeDeliveries(
    db,
    Array.from({ length: 1_700 }, () => ({ webhookId, state: "delivered" as const, finished: new Date() })),
  );
  expect(await foldDeltas(db)).toBe(500);
  let folded = 0;
  // A step that finds another process at it does nothing.
  while ((await db("rollup_deltas").limit(1)).length > 0)
    for (const step of await Promise.all([foldDeltas(db), foldDeltas(db), foldDeltas(db)])) folded += step;
  expect(folded).toBe(1_200);
  await expectRollups(db);
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

test("minutes are deleted once hours suffice, and hours with the deliveries that they count", async () => {
  const webhookId = await queue(db, 0);
  // In the middle of an hour, so that none of them is at an edge.
  const at = (hoursAgo: number) => new Date((Math.floor(Date.now() / HOUR_MS) - hoursAgo + 0.5) * HOUR_MS);
  const ended = [1, 24, 28, 48, 100].map(at);
  const delivered = { webhookId, state: "delivered" as const };
  await storeDeliveries(
    db,
    ended.map((time) => ({ ...delivered, created: time, finished: time })),
  );
  await foldDeltas(db);
  await deleteOldRollups(db, at(72));
  const left = (table: string) => db(table).where({ webhook_id: 0 }).orderBy("start", "desc").pluck("start");
  expect(await left("rollup_minutes")).toEqual(ended.slice(0, 2));
  expect(await left("rollup_hours")).toHaveLength(4);
});

test("in minutes and hours that version 0.2.0 counted, attempts that did not deliver count as failed", async () => {
  await queue(db, 6);
  const deliveries = await claim(db);
  await record(db, deliveries.slice(0, 1), 200);
  await record(db, deliveries.slice(1, 3), 500);
  await foldDeltas(db);
  // It has no such column, and leaves it out.
  for (const table of ["rollup_minutes", "rollup_hours"]) await db(table).update({ failed_attempts: null });
  await record(db, deliveries.slice(3), 500);
  await foldDeltas(db);
  const counted = await rows(
    db,
    `select sum(attempts)::int as attempts, sum(failed_attempts)::int as failed
      from (${countsSince("minute", "true", "true")}) c where webhook_id = 0`,
  );
  expect(counted).toEqual([{ attempts: 6, failed: 5 }]);
});
