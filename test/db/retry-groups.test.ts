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

  test("belongs to one failing webhook; of more than 200 those with few deliveries share, by address", async () => {
    const many = MAX_GROUPS + 60;
    for (let n = 0; n < many; n += 1) await queue(db, n < 10 ? 3 : 1);
    const token = await freshToken(db);
    await claimEverything(token);
    const failing = await assignGroups(db, token.runId);
    expect(failing).toHaveLength(many);
    const groups = Map.groupBy(failing, ({ group }) => group);
    const [own, shared] = [[...groups.values()].filter(isOne), [...groups.values()].filter((g) => !isOne(g))];
    expect(own.flat().map(({ deliveries }) => deliveries)).toEqual(Array(10).fill(3));
    // 250 in 50 groups.
    expect(shared.map(({ length }) => length)).toEqual(Array(50).fill(5));
    // Each has what follows the last of the one before, by address.
    const addresses = shared.flatMap((group) => group.map(({ targetUrl }) => targetUrl).sort());
    expect(addresses).toEqual(addresses.toSorted());
    expect(await assignGroups(db, token.runId)).toEqual(failing);
  });

  test("stays within 200 numbers when more webhooks fail later", async () => {
    const token = await freshToken(db);
    for (let n = 0; n < MAX_GROUPS - 10; n += 1) await queue(db, 1);
    await claimEverything(token);
    const first = await assignGroups(db, token.runId);
    expect(new Set(first.map(({ group }) => group)).size).toBe(MAX_GROUPS - 10);
    for (let n = 0; n < 100; n += 1) await queue(db, n === 0 ? 50 : 1);
    await claimEverything(token);
    const all = await assignGroups(db, token.runId);
    expect(all).toHaveLength(MAX_GROUPS + 90);
    const numbers = all.map(({ group }) => group);
    expect(Math.min(...numbers)).toBeGreaterThanOrEqual(1);
    expect(Math.max(...numbers)).toBeLessThanOrEqual(MAX_GROUPS);
    const groupOf = new Map(all.map(({ webhookId, group }) => [webhookId, group]));
    for (const { webhookId, group } of first) expect(groupOf.get(webhookId)).toBe(group);
  });
});

const isOne = (group: readonly unknown[]) => group.length === 1;

async function claimEverything(token: ClaimToken): Promise<void> {
  for (let after: bigint | null = 0n; after !== null; )
    after = (await claimPending(db, token, { ...ALL, after })).next;
}
