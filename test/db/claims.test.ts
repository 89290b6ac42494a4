import { describe, expect, test } from "vitest";
import { MAX_CLAIMS } from "../../src/db/claim-statement.ts";
import { claimPending, takeOver } from "../../src/db/delivery-claims.ts";
import { handOver, release } from "../../src/db/delivery-release.ts";
import { recordAttempts } from "../../src/db/delivery-results.ts";
import { closeRun } from "../../src/db/runs.ts";
import { ALL, freshToken, openQueueDatabase, queue, result, SPACING, stored } from "./queue.ts";

const db = await openQueueDatabase();

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
