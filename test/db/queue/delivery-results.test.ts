import { describe, expect, test } from "vitest";
import { timeOfId } from "../../../src/db/partitions.ts";
import { type ClaimedDelivery, claimGroup, claimPending } from "../../../src/db/queue/claims.ts";
import { endInterrupted } from "../../../src/db/queue/endings.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { assignGroups, leavePaused } from "../../../src/db/queue/retry-groups.ts";
import { deleteWebhook } from "../../../src/db/webhooks/webhooks.ts";
import {
  ALL,
  databaseTime,
  freshClaimant,
  NO_WAIT,
  openQueueDatabase,
  queue,
  result,
  SPACING,
  stored,
} from "./queue.ts";

const db = await openQueueDatabase();

describe("recording", () => {
  test("counts in the database: the fourth failed attempt is failed, in the same statement", async () => {
    await queue(db, 1);
    const claimant = await freshClaimant(db);
    let [delivery] = (await claimPending(db, claimant, ALL)).deliveries;
    const states: (string | undefined)[] = [];
    while (delivery) {
      states.push((await recordAttempts(db, [result(delivery, 503)], NO_WAIT)).get(delivery.id));
      await assignGroups(db, claimant.runId);
      const group = { group: 1, limit: 10, excluded: [] };
      [delivery] = (await claimGroup(db, claimant, group)).deliveries;
    }
    expect(states).toEqual(["retrying", "retrying", "retrying", "failed"]);
    const { rows } = await db.raw("select number, status, response_start from all_attempts order by number");
    expect(rows).toEqual([1, 2, 3, 4].map((number) => ({ number, status: 503, response_start: "answer" })));
    // The last one is in the log only.
    expect(await db("attempts").orderBy("number").pluck("number")).toEqual([1, 2, 3]);
  });

  test("moves a delivery from the queue to the retries or the log: it is in one table at a time", async () => {
    const webhookId = await queue(db, 3);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, { ...ALL, limit: 2 });
    const [ended, waits] = deliveries as [(typeof deliveries)[0], (typeof deliveries)[0]];
    const states = await recordAttempts(db, [result(ended, 200), result(waits, 500)], SPACING);
    expect([states.get(ended.id), states.get(waits.id)]).toEqual(["delivered", "retrying"]);
    expect(await db("queue").pluck("webhook_id")).toEqual([webhookId]);
    expect(await db("retries").select("id", "claimed_by", "claims", "run_id")).toEqual([
      { id: waits.id, claimed_by: null, claims: 0, run_id: claimant.runId },
    ]);
    expect(await db("deliveries").select("id", "event_id", "outcome", "status", "attempts")).toEqual([
      { id: ended.id, event_id: ended.eventId, outcome: "delivered", status: 200, attempts: 1 },
    ]);
    expect(await db("attempts").pluck("delivery_id")).toEqual([waits.id]);
  });

  test("the same result twice changes nothing the second time", async () => {
    await queue(db, 2);
    const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
    const once = deliveries.map((delivery, n) => result(delivery, n === 0 ? 503 : 200));
    expect((await recordAttempts(db, once, SPACING)).size).toBe(2);
    expect((await recordAttempts(db, once, SPACING)).size).toBe(0);
    const ids = deliveries.map(({ id }) => id);
    expect(await stored(db, ids)).toMatchObject([
      { state: "retrying", attempts: 1, claims: 0 },
      { state: "delivered", attempts: 1, claims: 0 },
    ]);
    expect(await db("rollup_deltas").pluck("webhook_ids")).toHaveLength(1);
  });

  test("the same results by two calls at once are recorded by one of them", async () => {
    await queue(db, 100);
    const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
    const results = deliveries.map((delivery, n) => result(delivery, n % 2 === 0 ? 503 : 200));
    const calls = await Promise.all([1, 2, 3].map(() => recordAttempts(db, results, SPACING)));
    expect(calls.map(({ size }) => size).sort((a, b) => b - a)).toEqual([100, 0, 0]);
    expect((await db.raw("select count(*)::int as n from all_attempts")).rows).toEqual([{ n: 100 }]);
  });

  test("of a first attempt and a retry goes in together", async () => {
    await queue(db, 2);
    const claimant = await freshClaimant(db);
    const [first] = (await claimPending(db, claimant, { ...ALL, limit: 1 })).deliveries;
    await recordAttempts(db, [result(first as never, 500)], NO_WAIT);
    await assignGroups(db, claimant.runId);
    const group = { group: 1, limit: 10, excluded: [] };
    const retried = (await claimGroup(db, claimant, group)).deliveries;
    const { deliveries } = await claimPending(db, claimant, ALL);
    const both = [...retried, ...deliveries];
    expect(both.map(({ token }) => token.table)).toEqual(["retries", "queue"]);
    const states = await recordAttempts(
      db,
      both.map((delivery) => result(delivery, 200)),
      SPACING,
    );
    expect([...states.values()]).toEqual(["delivered", "delivered"]);
    expect((await db.raw("select attempts from deliveries order by attempts")).rows).toEqual([
      { attempts: 1 },
      { attempts: 2 },
    ]);
  });

  test("spaces the retries by the settings, and longer where the receiver asked for it", async () => {
    await queue(db, 2);
    const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
    const [plain, patient] = deliveries.map((delivery) => result(delivery, 503));
    const before = await databaseTime(db);
    await recordAttempts(
      db,
      [plain as never, { ...(patient as never as object), retryAfterMs: 600_000 } as never],
      SPACING,
    );
    const recordedWithin = (await databaseTime(db)) - before;
    const due = await db("retries").orderBy("due").pluck<Date[]>("due");
    const waits = due.map((at) => at.getTime() - before);
    for (const [index, wait] of [60_000, 600_000].entries()) {
      expect(waits[index]).toBeGreaterThanOrEqual(wait);
      expect(waits[index]).toBeLessThanOrEqual(wait + recordedWithin);
    }
  });

  test("keeps an attempt that was in flight when its webhook was deleted, and says delivered when it was", async () => {
    const webhookId = await queue(db, 3);
    const { deliveries } = await claimPending(db, await freshClaimant(db), { ...ALL, limit: 2 });
    await deleteWebhook(db, webhookId);
    // What nobody was sending ended at once.
    expect(await db("deliveries").pluck("outcome")).toEqual(["cancelled"]);
    const [first, second] = deliveries as [(typeof deliveries)[0], (typeof deliveries)[0]];
    const states = await recordAttempts(db, [result(first, 200), result(second, 500)], SPACING);
    expect([states.get(first.id), states.get(second.id)]).toEqual(["delivered", "cancelled"]);
    expect((await db.raw("select count(*)::int as n from all_attempts")).rows).toEqual([{ n: 2 }]);
    expect((await stored(db, [second.id]))[0]).toMatchObject({ attempts: 1, reason: "webhook deleted" });
  });

  test("puts a delivery into the partitions of its event's time", async () => {
    await queue(db, 1);
    const { deliveries } = await claimPending(db, await freshClaimant(db), ALL);
    await recordAttempts(
      db,
      deliveries.map((delivery) => result(delivery, 200)),
      SPACING,
    );
    const [event] = await db("events").pluck<string[]>("id");
    const { rows } = await db.raw("select id, tableoid::regclass::text as partition from deliveries");
    const day = timeOfId(event as string)
      .toISOString()
      .slice(0, 10)
      .replaceAll("-", "");
    expect(rows[0].partition).toContain(`deliveries_${day}_`);
    expect(rows[0].id.slice(0, 18)).toBe(event?.slice(0, 18));
  });
});

describe("a claimed retry that leaves its run, as its webhook is paused, at the same time", () => {
  /** Claims a retry, and begins a statement on it that has to wait until the retry has left its run. */
  async function whileItLeaves<T>(begin: (retry: ClaimedDelivery) => Promise<T>): Promise<T> {
    const webhookId = await queue(db, 1);
    const claimant = await freshClaimant(db);
    const [first] = (await claimPending(db, claimant, ALL)).deliveries;
    await recordAttempts(db, [result(first as ClaimedDelivery, 500)], NO_WAIT);
    await assignGroups(db, claimant.runId);
    const [retry] = (await claimGroup(db, claimant, { group: 1, limit: 1, excluded: [] })).deliveries;
    await db("webhooks").where({ id: webhookId }).update({ paused: new Date() });
    const leaving = await db.transaction();
    expect(await leavePaused(leaving, claimant.runId)).toBe(1);
    const begun = begin(retry as ClaimedDelivery);
    const waiting = "wait_event_type = 'Lock' and datname = current_database()";
    await expect.poll(() => db("pg_stat_activity").whereRaw(waiting).pluck("pid")).toHaveLength(1);
    await leaving.commit();
    return begun;
  }

  test("has its result recorded", async () => {
    const states = await whileItLeaves((retry) => recordAttempts(db, [result(retry, 200)], SPACING));
    expect([...states.values()]).toEqual(["delivered"]);
    expect(await db("retries")).toEqual([]);
    expect(await db("deliveries").pluck("attempts")).toEqual([2]);
  });

  test("fails if it was claimed too often", async () => {
    const ended = await whileItLeaves(({ id, token }) => endInterrupted(db, "retries", token.workerId, [id]));
    expect(ended).toBe(1);
    expect(await db("deliveries").pluck("reason")).toEqual(["interrupted"]);
  });
});
