import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type Db, openDatabase } from "../../src/db/database.ts";
import { claimPending } from "../../src/db/delivery-claims.ts";
import { recordAttempts } from "../../src/db/delivery-results.ts";
import { deleteExpired, firstIdOf } from "../../src/db/retention.ts";
import { closeRun } from "../../src/db/runs.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { freshToken, queue, result, SPACING } from "./queue.ts";

let database: TestDatabase;
let db: Db;
const soon = () => new Date(Date.now() + 60_000);

beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 5 });
});
beforeEach(() => db.raw("truncate deliveries, attempts, events, webhooks, run_groups, runs cascade"));
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

/** Delivers what is pending, in a run that is then closed. */
async function deliver(limit: number): Promise<void> {
  const token = await freshToken(db);
  const { deliveries } = await claimPending(db, token, { limit, after: 0n, excluded: [] });
  const results = deliveries.map((delivery) => result(delivery, token, 200));
  await recordAttempts(db, results, SPACING);
  await closeRun(db, token.runId);
}

async function counts(): Promise<Record<string, number>> {
  const { rows } = await db.raw(`select (select count(*)::int from deliveries) as deliveries,
    (select count(*)::int from attempts) as attempts, (select count(*)::int from events) as events,
    (select count(*)::int from runs) as runs`);
  return rows[0];
}

async function deleteAll(before: Date): Promise<number> {
  for (let steps = 0; ; steps += 1) {
    const { deliveries, events, runs } = await deleteExpired(db, before);
    if (deliveries + events + runs === 0) return steps;
  }
}

test("what is older than the retention goes, a step at a time: deliveries, attempts, events and runs", async () => {
  await queue(db, 1_500);
  await deliver(2_000);
  expect(await counts()).toEqual({ deliveries: 1_500, attempts: 1_500, events: 1_500, runs: 1 });
  expect(await deleteExpired(db, soon())).toMatchObject({ deliveries: 1_000, events: 0 });
  await deleteAll(soon());
  expect(await counts()).toEqual({ deliveries: 0, attempts: 0, events: 0, runs: 0 });
});

test("what is younger stays", async () => {
  await queue(db, 10);
  await deliver(100);
  expect(await deleteAll(new Date(Date.now() - 60_000))).toBe(0);
  expect(await counts()).toEqual({ deliveries: 10, attempts: 10, events: 10, runs: 1 });
});

test("what is still open stays, however old, and so does its event", async () => {
  await queue(db, 10);
  await deliver(4);
  await deleteAll(soon());
  expect(await counts()).toMatchObject({ deliveries: 6, attempts: 0, events: 6 });
  await deliver(100);
  expect(await counts()).toMatchObject({ deliveries: 6, attempts: 6 });
});

test("ids sort by their time, so that the primary keys serve as the index", async () => {
  const before = firstIdOf(new Date(Date.now() - 1));
  const { rows } = await db.raw("select new_delivery_id() as id");
  expect(rows[0].id > before).toBe(true);
  expect(rows[0].id < firstIdOf(soon())).toBe(true);
});
