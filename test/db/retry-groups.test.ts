import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import type { ClaimToken } from "../../src/db/claim-statement.ts";
import { claimGroup, claimPending } from "../../src/db/delivery-claims.ts";
import { recordAttempts } from "../../src/db/delivery-results.ts";
import { assignGroups, beginPasses, groupStatuses, MAX_GROUPS } from "../../src/db/retry-groups.ts";
import { ALL, databaseTime, freshToken, openQueueDatabase, queue, result, SPACING } from "./queue.ts";

const db = await openQueueDatabase();

describe("a retry group", () => {
  test("brings stragglers level before it tries anyone again", async () => {
    const webhookId = await queue(db, 4);
    const token = await freshToken(db);
    const { deliveries } = await claimPending(db, token, ALL);
    await recordAttempts(
      db,
      deliveries.slice(0, 3).map((delivery) => result(delivery, token, 500)),
      SPACING,
    );
    await assignGroups(db, token.runId);
    expect(await groupStatuses(db, [{ runId: token.runId, group: 1 }])).toEqual([
      { open: 4, level: 0, delayMs: 0 },
    ]);
    const pass = { ...token, activity: randomUUID() };
    await beginPasses(db, [{ token: pass, group: 1 }]);
    const stragglers = await claimGroup(db, pass, { group: 1, level: 0, limit: 10, excluded: [] });
    expect(stragglers.deliveries.map(({ id }) => id)).toEqual([deliveries[3]?.id]);
    const before = await databaseTime(db);
    await recordAttempts(db, [result(deliveries[3]?.id ?? "", pass, 500)], SPACING);
    const [none, status] = await groupStatuses(
      db,
      [2, 1].map((group) => ({ runId: token.runId, group })),
    );
    expect(none).toEqual({ open: 0, level: 0, delayMs: 0 });
    expect(status).toMatchObject({ open: 4, level: 1 });
    // A minute from when the straggler's result was recorded, which others' may not cut short.
    expect(status?.delayMs).toBeGreaterThanOrEqual(59_999 - ((await databaseTime(db)) - before));
    expect(status?.delayMs).toBeLessThanOrEqual(60_000);
    expect(await assignGroups(db, token.runId)).toMatchObject([{ webhookId, group: 1, deliveries: 4 }]);
  });

  test("belongs to the pass that began last: one that it replaced takes nothing back", async () => {
    await queue(db, 6);
    const token = await freshToken(db);
    const { deliveries } = await claimPending(db, token, ALL);
    await recordAttempts(
      db,
      deliveries.map((delivery) => result(delivery, token, 500)),
      SPACING,
    );
    await assignGroups(db, token.runId);
    const activity = randomUUID();
    const claim = async (pass: ClaimToken, limit: number) =>
      (await claimGroup(db, pass, { group: 1, level: 1, limit, excluded: [] })).deliveries.length;
    const passes = [
      { ...token, activity: randomUUID(), attempt: 3 },
      { ...token, activity, attempt: 1 },
      { ...token, activity, attempt: 2 },
    ] as const;
    const [lastOfBefore, first, second] = passes;
    await beginPasses(db, [{ token: lastOfBefore, group: 1 }]);
    expect(await claim(lastOfBefore, 2)).toBe(2);
    await beginPasses(db, [{ token: first, group: 1 }]);
    expect(await claim(first, 4)).toBe(4);
    await beginPasses(db, [{ token: second, group: 1 }]);
    expect(await claim(second, 1)).toBe(1);
    // Late: its successor has begun.
    await beginPasses(db, [{ token: first, group: 1 }]);
    for (const replaced of [lastOfBefore, first]) expect(await claim(replaced, 10)).toBe(0);
    expect(await claim(second, 10)).toBe(5);
  });

  test("belongs to one failing webhook; of more than 200 the smallest share", async () => {
    const many = MAX_GROUPS + 60;
    for (let n = 0; n < many; n += 1) await queue(db, n < 10 ? 3 : 1);
    const token = await freshToken(db);
    for (let after = 0n; ; ) {
      const { next } = await claimPending(db, token, { ...ALL, after });
      if (next === null) break;
      after = next;
    }
    const failing = await assignGroups(db, token.runId);
    expect(failing).toHaveLength(many);
    const groups = new Map<number, number>();
    for (const { group } of failing) groups.set(group, (groups.get(group) ?? 0) + 1);
    expect(groups.size).toBeLessThanOrEqual(MAX_GROUPS);
    for (const { group, deliveries } of failing) if (deliveries === 3) expect(groups.get(group)).toBe(1);
    expect(await assignGroups(db, token.runId)).toEqual(failing);
  });
});
