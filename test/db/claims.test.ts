import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type ClaimToken, MAX_CLAIMS } from "../../src/db/claim-statement.ts";
import { type Db, openDatabase } from "../../src/db/database.ts";
import { claimGroup, claimPending, takeOver } from "../../src/db/delivery-claims.ts";
import { handOver, release } from "../../src/db/delivery-release.ts";
import { recordAttempts } from "../../src/db/delivery-results.ts";
import { assignGroups, beginPasses, groupStatuses, MAX_GROUPS } from "../../src/db/retry-groups.ts";
import { closeExpiredRuns, closeRun, openRuns, renewLeases } from "../../src/db/runs.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { freshToken, queue, result, SPACING, stored } from "./queue.ts";

let database: TestDatabase;
let db: Db;
const ALL = { limit: 1_000, after: 0n, excluded: [] };

beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 10 });
});
beforeEach(() => db.raw("truncate deliveries, attempts, events, webhooks, run_groups, runs cascade"));
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

/** Now, in whole milliseconds since 1970, by the clock that deliveries are spaced by. */
async function databaseTime(): Promise<number> {
  const { rows } = await db.raw("select clock_timestamp() as now");
  return rows[0].now.getTime();
}

describe("a claim", () => {
  test("is exclusive: claimers at the same time share nothing and leave nothing", async () => {
    await queue(db, 300);
    await queue(db, 200);
    const tokens = await Promise.all([1, 2, 3, 4, 5].map(() => freshToken(db)));
    const claimed = await Promise.all(
      tokens.map(async (token) => {
        const ids: string[] = [];
        for (;;) {
          const { deliveries } = await claimPending(db, token, { ...ALL, limit: 37 });
          if (deliveries.length === 0) return ids;
          ids.push(...deliveries.map(({ id }) => id));
        }
      }),
    );
    expect(new Set(claimed.flat()).size).toBe(500);
    expect(claimed.flat()).toHaveLength(500);
  });

  test("is fair: a webhook with a thousand pending does not hold up another's one", async () => {
    const large = await queue(db, 1_000);
    const small = await queue(db, 1);
    const { deliveries } = await claimPending(db, await freshToken(db), { ...ALL, limit: 100 });
    expect(deliveries).toHaveLength(51);
    expect(deliveries.filter(({ webhook }) => webhook.id === small)).toHaveLength(1);
    expect(deliveries.filter(({ webhook }) => webhook.id === large)).toHaveLength(50);
  });

  test("knows each webhook as it is at the claim, and reads none again that has not changed", async () => {
    const [same, changed] = [await queue(db, 2), await queue(db, 2)];
    const claim = async () => {
      const { deliveries } = await claimPending(db, await freshToken(db), { ...ALL, limit: 2 });
      return new Map(deliveries.map(({ webhook }) => [webhook.id, webhook]));
    };
    const before = await claim();
    await db.raw("update webhooks set target_url = 'https://moved.example/', secret = '\\x02' where id = ?", [
      String(changed),
    ]);
    const after = await claim();
    expect(after.get(same)).toBe(before.get(same));
    expect(before.get(changed)?.targetUrl).not.toBe("https://moved.example/");
    expect(after.get(changed)).toMatchObject({
      targetUrl: "https://moved.example/",
      secrets: [{ sealed: Buffer.from([2]), expires: null }],
    });
  });

  test("takes the oldest of a webhook first, and starts where it is told", async () => {
    const first = await queue(db, 10);
    const second = await queue(db, 10);
    const { deliveries, next } = await claimPending(db, await freshToken(db), {
      ...ALL,
      limit: 3,
      after: first,
    });
    expect(new Set(deliveries.map(({ webhook }) => webhook.id))).toEqual(new Set([second]));
    expect(next).toBeNull();
    const { rows } = await db.raw(
      "select id from deliveries where webhook_id = ? order by created, id limit 3",
      [String(second)],
    );
    expect(new Set(deliveries.map(({ id }) => id))).toEqual(
      new Set(rows.map(({ id }: { id: string }) => id)),
    );
  });

  test("keeps to a webhook's rate limit, however many claim at the same time", async () => {
    const webhookId = await queue(db, 500);
    await db.raw("update webhooks set rate_limit = 50, rate_at = now() - interval '1 hour' where id = ?", [
      String(webhookId),
    ]);
    const tokens = await Promise.all([1, 2, 3, 4, 5, 6].map(() => freshToken(db)));
    const since = Date.now();
    const claims = await Promise.all(tokens.map((token) => claimPending(db, token, ALL)));
    const tookSeconds = (Date.now() - since) / 1_000;
    const claimed = claims.reduce((sum, { deliveries }) => sum + deliveries.length, 0);
    expect(claimed).toBeGreaterThanOrEqual(50);
    // What the bucket held, and what came in meanwhile.
    expect(claimed).toBeLessThanOrEqual(50 + Math.ceil(tookSeconds * 50));
    expect(claims.every(({ limited }) => limited)).toBe(true);
  });

  test("leaves out what is excluded and what is paused", async () => {
    const excluded = await queue(db, 2);
    const paused = await queue(db, 2);
    await db("webhooks")
      .where({ id: String(paused) })
      .update({ paused: new Date() });
    expect(await claimPending(db, await freshToken(db), { ...ALL, excluded: [excluded] })).toMatchObject({
      touched: 0,
    });
  });

  test("cancels what belongs to a deleted webhook or a revoked key", async () => {
    const deleted = await queue(db, 1);
    const revoked = await queue(db, 1);
    await db("webhooks")
      .where({ id: String(deleted) })
      .update({ deleted: new Date() });
    await db.raw(
      "update api_keys set revoked = now() where id = (select api_key_id from webhooks where id = ?)",
      [String(revoked)],
    );
    const { deliveries, touched } = await claimPending(db, await freshToken(db), ALL);
    expect({ deliveries, touched }).toEqual({ deliveries: [], touched: 2 });
    const { rows } = await db.raw("select state, reason, finished is not null as finished from deliveries");
    expect(rows).toEqual(Array(2).fill({ state: "cancelled", reason: "webhook deleted", finished: true }));
  });

  test("that is taken over leaves nothing for the predecessor's late results to match", async () => {
    await queue(db, 3);
    const zombie = await freshToken(db);
    const { deliveries } = await claimPending(db, zombie, ALL);
    const successor = { ...zombie, attempt: 2 };
    expect((await takeOver(db, successor)).deliveries.map(({ id }) => id)).toEqual(
      deliveries.map(({ id }) => id),
    );
    expect(
      await recordAttempts(
        db,
        deliveries.map((delivery) => result(delivery, zombie, 500)),
        SPACING,
      ),
    ).toEqual(new Map());
    const states = await recordAttempts(
      db,
      deliveries.map((delivery) => result(delivery, successor, 200)),
      SPACING,
    );
    expect([...states.values()]).toEqual(["delivered", "delivered", "delivered"]);
    const { rows } = await db.raw("select number, status from attempts");
    expect(rows).toEqual(Array(3).fill({ number: 1, status: 200 }));
  });

  test("that brings no result ten times ends as interrupted", async () => {
    await queue(db, 1);
    let token = await freshToken(db);
    const { deliveries } = await claimPending(db, token, ALL);
    const ids = deliveries.map(({ id }) => id);
    for (let claims = 2; claims <= MAX_CLAIMS; claims += 1) {
      token = { ...token, attempt: claims };
      expect((await takeOver(db, token)).deliveries).toHaveLength(1);
    }
    expect((await takeOver(db, { ...token, attempt: 99 })).deliveries).toHaveLength(0);
    expect(await stored(db, ids)).toMatchObject([{ state: "failed", attempts: 0, reason: "interrupted" }]);
  });

  test("given back is pending again, as if it had not been claimed", async () => {
    await queue(db, 2);
    const token = await freshToken(db);
    const ids = (await claimPending(db, token, ALL)).deliveries.map(({ id }) => id);
    await release(db, token, ids, "pending");
    expect(await stored(db, ids)).toEqual(
      Array(2).fill({ state: "pending", attempts: 0, claims: 0, reason: null, run_id: null }),
    );
    expect((await claimPending(db, await freshToken(db), ALL)).deliveries).toHaveLength(2);
  });

  test("is impossible for a run that is closed", async () => {
    await queue(db, 2);
    const token = await freshToken(db);
    await closeRun(db, token.runId);
    expect(await claimPending(db, token, ALL)).toMatchObject({ touched: 0 });
    await handOver(db, token, [1n, 2n, 3n], 10);
    expect((await db.raw("select distinct state from deliveries")).rows).toEqual([{ state: "pending" }]);
  });
});

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
    const before = await databaseTime();
    await recordAttempts(
      db,
      [plain as never, { ...(patient as never as object), retryAfterMs: 600_000 } as never],
      SPACING,
    );
    const recordedWithin = (await databaseTime()) - before;
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
    const before = await databaseTime();
    await recordAttempts(db, [result(deliveries[3]?.id ?? "", pass, 500)], SPACING);
    const [none, status] = await groupStatuses(
      db,
      [2, 1].map((group) => ({ runId: token.runId, group })),
    );
    expect(none).toEqual({ open: 0, level: 0, delayMs: 0 });
    expect(status).toMatchObject({ open: 4, level: 1 });
    // A minute from when the straggler's result was recorded, which others' may not cut short.
    expect(status?.delayMs).toBeGreaterThanOrEqual(59_999 - ((await databaseTime()) - before));
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

describe("a run's lease", () => {
  test("gives everything open back when it runs out, with the attempts as counted", async () => {
    await queue(db, 3);
    const token = await freshToken(db, -1);
    const { deliveries } = await claimPending(db, token, ALL);
    const [first, second, third] = deliveries.map(({ id }) => id) as [string, string, string];
    await recordAttempts(db, [result(first, token, 500), result(second, token, 200)], SPACING);
    expect(await closeExpiredRuns(db)).toBe(1);
    expect(
      (await stored(db, [first, second, third])).map(({ state, attempts }) => [state, attempts]),
    ).toEqual([
      ["pending", 1],
      ["delivered", 1],
      ["pending", 0],
    ]);
    expect((await recordAttempts(db, [result(third, token, 200)], SPACING)).size).toBe(0);
  });

  test("holds while it is renewed, is never shortened, and continue-as-new keeps the run", async () => {
    const wish = { workflowId: "w", firstRunId: "r", leaseMs: -1 };
    const [runId] = (await openRuns(db, [wish])) as [bigint];
    await renewLeases(db, [{ runId, leaseMs: 60_000 }]);
    expect(await openRuns(db, [wish])).toEqual([runId]);
    expect(await closeExpiredRuns(db)).toBe(0);
  });

  test("of several is opened and renewed at once, each for the longest that is asked", async () => {
    const wish = (workflowId: string, leaseMs: number) => ({ workflowId, firstRunId: "r", leaseMs });
    const opened = await openRuns(db, [wish("a", -1), wish("b", 60_000), wish("a", -2), wish("b", -1)]);
    const [a, b] = opened as [bigint, bigint];
    expect(a).not.toBe(b);
    expect(opened).toEqual([a, b, a, b]);
    await renewLeases(db, [
      { runId: a, leaseMs: 60_000 },
      { runId: a, leaseMs: -1 },
    ]);
    expect(await closeExpiredRuns(db)).toBe(0);
  });

  test("is closed with the run's account", async () => {
    const { runId } = await freshToken(db);
    const more = { sent: 2, delivered: 1, failed: 0 };
    await renewLeases(db, [{ runId, leaseMs: 1_000, more: { sent: 3, delivered: 2, failed: 1 } }]);
    await renewLeases(db, [
      { runId, leaseMs: 1_000, more },
      { runId, leaseMs: 1_000, more },
    ]);
    expect(await closeRun(db, runId)).toEqual({ sent: 7, delivered: 4, failed: 1, putBack: 0 });
  });
});
