import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { claimGroup, claimPending } from "../../src/db/delivery-claims.ts";
import { recordAttempts } from "../../src/db/delivery-results.ts";
import { assignGroups, beginPasses } from "../../src/db/retry-groups.ts";
import { ALL, databaseTime, freshToken, openQueueDatabase, queue, result, SPACING, stored } from "./queue.ts";

const db = await openQueueDatabase();

describe("recording", () => {
  test("counts in the database: the fourth failed attempt is failed, in the same statement", async () => {
    await queue(db, 1);
    const token = await freshToken(db);
    const [delivery] = (await claimPending(db, token, ALL)).deliveries;
    const id = delivery?.id ?? "";
    await assignGroups(db, token.runId);
    const states: (string | undefined)[] = [];
    const activity = randomUUID();
    for (let attempt = 1; attempt <= 4; attempt += 1) {
      const pass = { ...token, activity, attempt };
      if (attempt > 1) await beginPasses(db, [{ token: pass, group: 1 }]);
      if (attempt > 1) await claimGroup(db, pass, { group: 1, level: attempt - 1, limit: 10, excluded: [] });
      const under = attempt > 1 ? pass : token;
      states.push((await recordAttempts(db, [result(id, under, 503)], SPACING)).get(id));
    }
    expect(states).toEqual(["retrying", "retrying", "retrying", "failed"]);
    const { rows } = await db.raw("select number, status, response_start from attempts order by number");
    expect(rows).toEqual([1, 2, 3, 4].map((number) => ({ number, status: 503, response_start: "answer" })));
  });

  test("the same result twice changes nothing the second time", async () => {
    await queue(db, 1);
    const token = await freshToken(db);
    const [delivery] = (await claimPending(db, token, ALL)).deliveries;
    const once = [result(delivery?.id ?? "", token, 503)];
    expect((await recordAttempts(db, once, SPACING)).size).toBe(1);
    expect((await recordAttempts(db, once, SPACING)).size).toBe(0);
    expect(await stored(db, [delivery?.id ?? ""])).toMatchObject([{ attempts: 1, claims: 0 }]);
  });

  test("spaces the retries by the settings, and longer where the receiver asked for it", async () => {
    await queue(db, 2);
    const token = await freshToken(db);
    const { deliveries } = await claimPending(db, token, ALL);
    const [plain, patient] = deliveries.map((delivery) => result(delivery, token, 503));
    const before = await databaseTime(db);
    await recordAttempts(
      db,
      [plain as never, { ...(patient as never as object), retryAfterMs: 600_000 } as never],
      SPACING,
    );
    const recordedWithin = (await databaseTime(db)) - before;
    const due = await db("deliveries").orderBy("retry_at").pluck<Date[]>("retry_at");
    const waits = due.map((at) => at.getTime() - before);
    for (const [index, wait] of [60_000, 600_000].entries()) {
      expect(waits[index]).toBeGreaterThanOrEqual(wait);
      expect(waits[index]).toBeLessThanOrEqual(wait + recordedWithin);
    }
  });

  test("keeps an attempt that was in flight when its webhook was deleted, and says delivered when it was", async () => {
    const webhookId = await queue(db, 2);
    const token = await freshToken(db);
    const { deliveries } = await claimPending(db, token, ALL);
    await db("deliveries")
      .where({ webhook_id: String(webhookId) })
      .update({ state: "cancelled", finished: new Date() });
    const [first, second] = deliveries.map(({ id }) => id) as [string, string];
    const states = await recordAttempts(db, [result(first, token, 200), result(second, token, 500)], SPACING);
    expect([states.get(first), states.get(second)]).toEqual(["delivered", "cancelled"]);
    expect((await db.raw("select count(*)::int as n from attempts")).rows).toEqual([{ n: 2 }]);
  });
});
