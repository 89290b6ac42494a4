import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { type Db, rows } from "../../../src/db/database.ts";
import { queueTestEvent } from "../../../src/db/events/test-events.ts";
import {
  type Claimant,
  type ClaimedDelivery,
  claimGroup,
  claimPending,
  MAX_CLAIMS,
  release,
} from "../../../src/db/queue/claims.ts";
import { recordAttempts } from "../../../src/db/queue/results.ts";
import { assignGroups } from "../../../src/db/queue/retry-groups.ts";
import { ClaimedWebhooks } from "../../../src/db/queue/webhooks.ts";
import { endExpiredWorkers } from "../../../src/db/queue/workers.ts";
import { updateWebhook } from "../../../src/db/webhooks/webhook-update.ts";
import { observed } from "../../delivery/engine-parts.ts";
import {
  ALL,
  freshClaimant,
  makeEndpoint,
  NO_WAIT,
  openQueueDatabase,
  queue,
  queueMany,
  result,
  stored,
} from "./queue.ts";

const db = await openQueueDatabase();

/** The rows of a table that work updates, and how many of them without a write to an index (HOT). */
async function updates(table: string, work: (trx: Db) => Promise<unknown>) {
  return db.transaction(async (trx) => {
    // What the connection has not reported yet counts, too.
    const counted = async () => {
      const [row] = await rows<{ all: number; hot: number }>(
        trx,
        "select n_tup_upd::int as all, n_tup_hot_upd::int as hot from pg_stat_xact_user_tables where relname = :table",
        { table },
      );
      return row as { all: number; hot: number };
    };
    const before = await counted();
    await work(trx);
    const after = await counted();
    return { all: after.all - before.all, hot: after.hot - before.hot };
  });
}

/** Queues twenty more deliveries for a webhook. */
async function queueAgain(webhookId: bigint): Promise<void> {
  await db.raw(
    `insert into queue (id, event_id, webhook_id)
      select new_delivery_id(event_id), event_id, webhook_id from retries where webhook_id = ?`,
    [String(webhookId)],
  );
}

/**
 * Works in a transaction, whose time stands still in a second that first attempts leave to retries, or in another one.
 * Its buckets had three tokens when the second began, and have got 100 or more since.
 */
async function within(isOfRetries: boolean, work: (trx: Db) => Promise<unknown>): Promise<void> {
  for (;;) {
    const trx = await db.transaction();
    try {
      const [time] = await rows<{ seconds: number }>(
        trx,
        "select extract(epoch from now())::float8 as seconds",
      );
      const { seconds } = time as NonNullable<typeof time>;
      if ((Math.floor(seconds) % 5 === 0) === isOfRetries && seconds % 1 > 0.1) {
        // Half a token more than three: a claim adds and subtracts the same fractional number, which can lose a little by rounding.
        const bucket = { rate_tokens: 3.5, rate_at: trx.raw("date_trunc('second', now())") };
        for (const table of ["webhooks", "endpoints"] as const) await trx(table).update(bucket);
        await work(trx);
        return;
      }
      await trx.raw("select pg_sleep(0.02)");
    } finally {
      await trx.rollback();
    }
  }
}

/**
 * Until PostgreSQL may use the space of dead rows again: no session has an older snapshot, such as one of autovacuum, and
 * transactions of other tests that began before have ended, which a session takes for ones that may see the rows.
 */
async function untilDeadRowsAreGone(): Promise<void> {
  const [now] = await rows<{ end: bigint }>(
    db,
    "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint as end",
  );
  const older = `select pid from pg_stat_activity
      where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()
    union all select 0 where pg_snapshot_xmin(pg_current_snapshot())::text::bigint < :end::bigint`;
  await expect.poll(() => rows(db, older, { end: now?.end ?? 0n }), { timeout: 60_000 }).toEqual([]);
}

describe("a claim", () => {
  test("updates no index, of a first attempt or a retry, and neither does giving back", async () => {
    for (let n = 0; n < 5; n += 1) await queue(db, 200);
    const claimant = await freshClaimant(db);
    let deliveries: ClaimedDelivery[] = [];
    const claim = async (trx: Db) => {
      ({ deliveries } = await claimPending(trx, claimant, ALL));
    };
    const all = { all: 1_000, hot: 1_000 };
    expect(await updates("queue", claim)).toEqual(all);
    await untilDeadRowsAreGone();
    expect(await updates("queue", (trx) => release(trx, claimant.workerId, deliveries))).toEqual(all);
    await claim(db);

    await recordAttempts(
      db,
      deliveries.map((each) => result(each, 500)),
      NO_WAIT,
    );
    await assignGroups(db, claimant.runId);
    await db.raw("update run_groups set group_number = 1");
    const group = { group: 1, limit: 1_000, excluded: [] };
    expect(await updates("retries", (trx) => claimGroup(trx, claimant, group))).toEqual(all);
  });

  test("is exclusive: claimers at the same time share nothing and leave nothing", async () => {
    await queue(db, 300);
    await queue(db, 200);
    const claimants = await Promise.all([1, 2, 3, 4, 5].map(() => freshClaimant(db)));
    const claimed = await Promise.all(
      claimants.map(async (claimant) => {
        const ids: string[] = [];
        for (;;) {
          const { deliveries } = await claimPending(db, claimant, { ...ALL, limit: 37 });
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
    const { deliveries } = await claimPending(db, await freshClaimant(db), { ...ALL, limit: 100 });
    expect(deliveries).toHaveLength(51);
    expect(deliveries.filter(({ webhook }) => webhook.id === small)).toHaveLength(1);
    expect(deliveries.filter(({ webhook }) => webhook.id === large)).toHaveLength(50);
  });

  test("does not lower a webhook's share for others whose deliveries are all claimed", async () => {
    for (let n = 0; n < 10; n += 1) await queue(db, 3);
    expect((await claimPending(db, await freshClaimant(db), ALL)).deliveries).toHaveLength(30);
    await queue(db, 1_000);
    const { deliveries } = await claimPending(db, await freshClaimant(db), { ...ALL, limit: 110 });
    expect(deliveries).toHaveLength(110);
  });

  test("knows each webhook as it is at the claim, and reads none again that has not changed", async () => {
    const [same, changed] = [await queue(db, 2), await queue(db, 2)];
    const known = new ClaimedWebhooks();
    const claim = async () => {
      const { deliveries } = await claimPending(db, await freshClaimant(db), { ...ALL, limit: 2 }, known);
      return new Map(deliveries.map(({ webhook }) => [webhook.id, webhook]));
    };
    const before = await claim();
    await db.raw("update webhooks set target_url = 'https://moved.example/', secret = '\\x02' where id = ?", [
      String(changed),
    ]);
    const after = await claim();
    expect(after.get(same)).toBe(before.get(same));
    expect(before.get(changed)?.target.host).not.toBe("moved.example");
    expect(after.get(changed)).toMatchObject({
      target: { origin: "https://moved.example", path: "/", host: "moved.example" },
      secrets: [{ sealed: Buffer.from([2]), expires: null }],
    });
  });

  test("knows its webhooks although other claims replace them all in the cache before the database responds", async () => {
    const id = await queue(db, 1);
    // As many as the cache holds, and one more.
    const others = await queueMany(db, { urlPrefix: "https://other.example/", webhooks: 10_001, events: 0 });
    const known = new ClaimedWebhooks();
    const before = await known.load(db, new Set([id]));
    const responded = Promise.withResolvers<void>();
    const loaded = known.load(
      observed(db, () => responded.promise),
      new Set([id]),
    );
    await known.load(db, new Set(others));
    responded.resolve();
    expect((await loaded).get(id)).toBe(before.get(id));
    // It is no longer in the cache, so it is read again.
    const after = await known.load(db, new Set([id]));
    expect(after.get(id)).toEqual(before.get(id));
    expect(after.get(id)).not.toBe(before.get(id));
  });

  test("takes the oldest of a webhook first, and starts where it is told", async () => {
    const first = await queue(db, 10);
    const second = await queue(db, 10);
    const { deliveries, next } = await claimPending(db, await freshClaimant(db), {
      ...ALL,
      limit: 3,
      after: first,
    });
    expect(new Set(deliveries.map(({ webhook }) => webhook.id))).toEqual(new Set([second]));
    expect(next).toBeNull();
    const { rows: found } = await db.raw("select id from queue where webhook_id = ? order by id limit 3", [
      String(second),
    ]);
    expect(new Set(deliveries.map(({ id }) => id))).toEqual(
      new Set(found.map(({ id }: { id: string }) => id)),
    );
  });

  test("keeps to a webhook's rate limit, however many claim at the same time", async () => {
    const webhookId = await queue(db, 500);
    await db.raw("update webhooks set rate_limit = 50, rate_at = now() - interval '1 hour' where id = ?", [
      String(webhookId),
    ]);
    const claimants = await Promise.all([1, 2, 3, 4, 5, 6].map(() => freshClaimant(db)));
    const since = Date.now();
    const claims = await Promise.all(claimants.map((claimant) => claimPending(db, claimant, ALL)));
    const tookSeconds = (Date.now() - since) / 1_000;
    const claimed = claims.reduce((sum, { deliveries }) => sum + deliveries.length, 0);
    expect(claimed).toBeGreaterThanOrEqual(50);
    // What the bucket held, and what came in meanwhile.
    expect(claimed).toBeLessThanOrEqual(50 + Math.ceil(tookSeconds * 50));
    expect(claims.every(({ limited }) => limited)).toBe(true);
  });

  test("keeps to a webhook's rate limit when claims at the same time leave some of its tokens", async () => {
    const webhookId = await queue(db, 2_000);
    await db.raw("update webhooks set rate_limit = 200, rate_at = now() - interval '1 hour' where id = ?", [
      String(webhookId),
    ]);
    const claimants = await Promise.all([1, 2, 3, 4, 5].map(() => freshClaimant(db)));
    const since = Date.now();
    const claims = await Promise.all(
      claimants.map(async (claimant) => {
        let claimed = 0;
        for (let n = 0; n < 20; n += 1) {
          const { deliveries } = await claimPending(db, claimant, { ...ALL, limit: 15 });
          claimed += deliveries.length;
        }
        return claimed;
      }),
    );
    const tookSeconds = (Date.now() - since) / 1_000;
    const claimed = claims.reduce((sum, each) => sum + each, 0);
    expect(claimed).toBeGreaterThanOrEqual(200);
    expect(claimed).toBeLessThanOrEqual(200 + Math.ceil(tookSeconds * 200));
  });

  test("keeps to an endpoint's rate limit, whichever of its webhooks and however many claim at the same time", async () => {
    const ids = [await queue(db, 200), await queue(db, 200), await queue(db, 200)];
    await makeEndpoint(db, ids, 50);
    const claimants = await Promise.all([1, 2, 3, 4, 5, 6].map(() => freshClaimant(db)));
    const since = Date.now();
    const claims = await Promise.all(
      claimants.map((claimant, n) =>
        claimPending(db, claimant, { ...ALL, excluded: n % 2 === 0 ? [] : ids.slice(n % 3, 1 + (n % 3)) }),
      ),
    );
    const tookSeconds = (Date.now() - since) / 1_000;
    const claimed = claims.reduce((sum, { deliveries }) => sum + deliveries.length, 0);
    expect(claimed).toBeGreaterThanOrEqual(50);
    expect(claimed).toBeLessThanOrEqual(50 + Math.ceil(tookSeconds * 50));
    expect(claims.every(({ limited }) => limited)).toBe(true);
  });

  test("divides an endpoint's tokens evenly between its event types, and gives each in turn what is left over", async () => {
    const ids = [await queue(db, 40), await queue(db, 40), await queue(db, 40)];
    const other = await queue(db, 5);
    const endpointId = await makeEndpoint(db, ids, 1_000);
    const claimant = await freshClaimant(db);
    const claim = async (tokens: number) => {
      const rate_at = db.raw("now() + interval '1 hour'");
      await db("endpoints").where({ id: endpointId }).update({ rate_tokens: tokens, rate_at });
      const { deliveries } = await claimPending(db, claimant, ALL);
      return ids.map((id) => deliveries.filter(({ webhook }) => webhook.id === id).length);
    };
    expect(await claim(8)).toEqual([3, 3, 2]);
    // A webhook without an endpoint has its share beside them.
    expect(await db("queue").where({ webhook_id: String(other), claimed_by: null })).toEqual([]);
    expect(await claim(7)).toEqual([2, 2, 3]);
    expect(await claim(9)).toEqual([3, 3, 3]);
    // One token at a time reaches every type.
    expect([await claim(1), await claim(1), await claim(1), await claim(1)]).toEqual([
      [1, 0, 0],
      [0, 1, 0],
      [0, 0, 1],
      [1, 0, 0],
    ]);
    expect(await claim(0.9)).toEqual([0, 0, 0]);
  });

  test("continues at the rate limits after the clock of the database was set back", async () => {
    const [alone, shared] = [await queue(db, 5), await queue(db, 5)];
    await makeEndpoint(db, [shared], 50);
    await db("webhooks").where({ id: alone }).update({ rate_limit: 50 });
    const before = { rate_tokens: 0, rate_at: db.raw("now() + interval '1 hour'") };
    await db("webhooks").update(before);
    await db("endpoints").update(before);
    const claimant = await freshClaimant(db);
    const claimed = new Map([alone, shared].map((id) => [id, 0]));
    const claim = async () => {
      const { deliveries } = await claimPending(db, claimant, ALL);
      for (const { webhook } of deliveries) claimed.set(webhook.id, (claimed.get(webhook.id) ?? 0) + 1);
      return [...claimed.values()];
    };
    expect(await claim()).toEqual([0, 0]);
    await expect.poll(claim).toEqual([5, 5]);
  });

  test("spends an endpoint's tokens on retries too", async () => {
    const ids = [await queue(db, 6), await queue(db, 6)];
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    await recordAttempts(
      db,
      deliveries.map((delivery) => result(delivery, 500)),
      NO_WAIT,
    );
    await assignGroups(db, claimant.runId);
    await db("run_groups").update({ group_number: 1 });
    const endpointId = await makeEndpoint(db, ids, 1_000);
    const retry = async (tokens: number) => {
      const rate_at = db.raw("now() + interval '1 hour'");
      await db("endpoints").where({ id: endpointId }).update({ rate_tokens: tokens, rate_at });
      const group = { group: 1, limit: 100, excluded: [] };
      const claimed = await claimGroup(db, claimant, group);
      expect(claimed.limited).toBe(true);
      return ids.map((id) => claimed.deliveries.filter(({ webhook }) => webhook.id === id).length);
    };
    expect([await retry(1), await retry(1), await retry(4), await retry(100)]).toEqual([
      [1, 0],
      [0, 1],
      [2, 2],
      [3, 3],
    ]);
    // What nobody could use is left.
    const [{ rate_tokens: left } = { rate_tokens: 0 }] = await db("endpoints");
    expect(left).toBe(94);
  });

  describe.each(["webhook", "endpoint"])("of a rate-limited %s", (limited) => {
    /** A webhook with retries that are due, and pending deliveries of it, or of another webhook of the endpoint. */
    async function limit(): Promise<Claimant> {
      const retried = await queue(db, 20);
      const claimant = await freshClaimant(db);
      const { deliveries } = await claimPending(db, claimant, ALL);
      const results = deliveries.map((delivery) => result(delivery, 500));
      await recordAttempts(db, results, NO_WAIT);
      await assignGroups(db, claimant.runId);
      if (limited === "endpoint") await makeEndpoint(db, [retried, await queue(db, 20)], 1_000);
      else {
        await queueAgain(retried);
        await db("webhooks").update({ rate_limit: 1_000 });
      }
      return claimant;
    }

    test("leaves the tokens of one second in five to retries", async () => {
      const claimant = await limit();
      const group = { group: 1, limit: 100, excluded: [] };
      await within(true, async (trx) => {
        // What was left before may be spent.
        const before = await claimPending(trx, claimant, ALL);
        expect([before.touched, before.limited]).toEqual([3, true]);
        expect((await claimGroup(trx, claimant, group)).touched).toBe(20);
      });
    });

    test("leaves nothing to retries in the other seconds, nor if there are none", async () => {
      const claimant = await limit();
      const touched = async (trx: Db) => (await claimPending(trx, claimant, ALL)).touched;
      await within(false, async (trx) => expect(await touched(trx)).toBe(20));
      await db("retries").delete();
      await within(true, async (trx) => expect(await touched(trx)).toBe(20));
    });
  });

  test("changes no index, neither of the queue nor of what a rate limit counts", async () => {
    const ids = [await queue(db, 20), await queue(db, 20)];
    await makeEndpoint(db, ids, 50);
    await db("webhooks")
      .where({ id: await queue(db, 20) })
      .update({ rate_limit: 50, rate_at: db.raw("now() - interval '1 hour'") });
    const claimant = await freshClaimant(db);
    const updates = await db.transaction(async (trx) => {
      // With those that the connection made before and has not reported yet.
      const counted = () =>
        rows<{ name: string; updated: number; hot: number }>(
          trx,
          "select relname as name, n_tup_upd::int as updated, n_tup_hot_upd::int as hot from pg_stat_xact_user_tables",
        );
      const before = new Map((await counted()).map((each) => [each.name, each]));
      await claimPending(trx, claimant, ALL);
      return (await counted()).map(({ name, updated, hot }) => ({
        name,
        updated: updated - (before.get(name)?.updated ?? 0),
        hot: hot - (before.get(name)?.hot ?? 0),
      }));
    });
    const changed = updates.filter(({ updated }) => updated > 0).sort((a, b) => (a.name < b.name ? -1 : 1));
    expect(changed).toEqual([
      { name: "endpoints", updated: 1, hot: 1 },
      { name: "queue", updated: 60, hot: 60 },
      { name: "webhooks", updated: 1, hot: 1 },
    ]);
  });

  test("takes the latest test delivery of a paused webhook, once, and all that waits when it is resumed", async () => {
    const webhookId = await queue(db, 3);
    const test = { apiKeyId: randomUUID(), webhookId, process: 1, payload: "{}" };
    await updateWebhook(db, "everything", webhookId, { paused: true });
    await queueTestEvent(db, "everything", test);
    const latest = await queueTestEvent(db, "everything", test);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    expect(deliveries.map(({ id }) => id)).toEqual([latest?.deliveryId]);
    expect((await claimPending(db, claimant, ALL)).deliveries).toEqual([]);
    await updateWebhook(db, "everything", webhookId, { paused: false });
    expect((await claimPending(db, claimant, ALL)).deliveries).toHaveLength(4);
    // What was tested during one pause is not sent in the next.
    await updateWebhook(db, "everything", webhookId, { paused: true });
    await release(db, claimant.workerId, deliveries);
    expect((await claimPending(db, claimant, ALL)).deliveries).toEqual([]);
  });

  test("leaves out what is excluded, what is paused and what belongs to a deleted webhook", async () => {
    const excluded = await queue(db, 2);
    const paused = await queue(db, 2);
    await db("webhooks").where({ id: paused }).update({ paused: new Date() });
    const deleted = await queue(db, 2);
    await db("webhooks").where({ id: deleted }).update({ deleted: new Date() });
    expect(await claimPending(db, await freshClaimant(db), { ...ALL, excluded: [excluded] })).toMatchObject({
      touched: 0,
    });
  });

  test("that brings no result ten times ends as interrupted", async () => {
    await queue(db, 2);
    const [id, other] = (await claimPending(db, await freshClaimant(db, -1), ALL)).deliveries.map(
      (d) => d.id,
    );
    await db("queue").where({ id: other }).update({ claims: 0 });
    for (let claims = 2; claims <= MAX_CLAIMS; claims += 1) {
      expect(await endExpiredWorkers(db)).toHaveLength(1);
      expect((await claimPending(db, await freshClaimant(db, -1), ALL)).deliveries).toHaveLength(2);
    }
    await endExpiredWorkers(db);
    const last = await claimPending(db, await freshClaimant(db), ALL);
    expect(last).toMatchObject({ touched: 2, deliveries: [{ id: other }] });
    expect(await stored(db, [id as string, other as string])).toMatchObject([
      { state: "failed", attempts: 0, reason: "interrupted" },
      { state: "delivering", attempts: 0, claims: MAX_CLAIMS },
    ]);
  });

  test("given back is pending again, as if it had not been claimed", async () => {
    await queue(db, 2);
    const claimant = await freshClaimant(db);
    const { deliveries } = await claimPending(db, claimant, ALL);
    const ids = deliveries.map(({ id }) => id);
    expect(await stored(db, ids)).toMatchObject(Array(2).fill({ state: "delivering", claims: 1 }));
    await release(db, claimant.workerId, deliveries);
    expect(await stored(db, ids)).toEqual(
      Array(2).fill({ state: "pending", attempts: 0, claims: 0, reason: null, run_id: claimant.runId }),
    );
    expect((await claimPending(db, await freshClaimant(db), ALL)).deliveries).toHaveLength(2);
  });

  test("given back by a worker that has it no more stays with the one that has", async () => {
    await queue(db, 2);
    const late = await freshClaimant(db, -1);
    const { deliveries } = await claimPending(db, late, ALL);
    await endExpiredWorkers(db);
    const again = await claimPending(db, await freshClaimant(db), ALL);
    expect(again.deliveries).toHaveLength(2);
    await release(db, late.workerId, deliveries);
    expect(
      await stored(
        db,
        deliveries.map(({ id }) => id),
      ),
    ).toMatchObject(Array(2).fill({ state: "delivering", claims: 2 }));
  });
});
