import { setTimeout as wait } from "node:timers/promises";
import pg from "pg";
import { afterAll, beforeEach, expect, test } from "vitest";
import { openDatabases, rows } from "../../../src/db/database.ts";
import { release } from "../../../src/db/queue/claims.ts";
import { PendingClaims } from "../../../src/db/queue/pending-claims.ts";
import { ClaimedWebhooks } from "../../../src/db/queue/webhooks.ts";
import { createTestDatabase } from "../../support/database.ts";
import { empty, freshClaimant, queue } from "./queue.ts";

const DEAD_ROWS = 20_000;
/** Every claim counts as slow. */
const ALWAYS = {
  slowClaimMs: 0,
  minDeadRows: 0,
  manyDeadRows: Number.POSITIVE_INFINITY,
  kept: { durationFactor: 0, minMs: 30_000, maxMs: 30_000 },
};

const database = await createTestDatabase();
/** One connection, so that all of its reads are counted. */
const databases = openDatabases(database.url, {
  directUrl: undefined,
  poolSize: 1,
  preparedStatements: true,
  delivers: true,
});
const { db } = databases;
// An analysis that began before rows died would overwrite the number of dead rows.
await db.raw("alter table queue set (autovacuum_enabled = off)");
beforeEach(() => empty(db));
afterAll(async () => {
  await databases.close();
  await database.drop();
});

/** Pages of the queue and its indexes that have been read. */
async function pagesRead(): Promise<number> {
  await db.raw("select pg_stat_force_next_flush()");
  const [found] = await rows<{ pages: number }>(
    db,
    `select (heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::int as pages
      from pg_statio_user_tables where relname = 'queue'`,
  );
  return found?.pages ?? 0;
}

async function pagesOf(work: () => Promise<unknown>): Promise<number> {
  const before = await pagesRead();
  await work();
  return (await pagesRead()) - before;
}

/** A webhook with pending deliveries, after many others that an open snapshot keeps. */
async function queueBehindDeadRows(
  pending = 100,
): Promise<{ webhookId: bigint; [Symbol.asyncDispose](): Promise<void> }> {
  const webhookId = await queue(db, DEAD_ROWS + pending);
  const snapshot = new pg.Client({ connectionString: database.url });
  await snapshot.connect();
  await snapshot.query("begin isolation level repeatable read");
  await snapshot.query("select from queue limit 1");
  await db.raw("delete from queue where id in (select id from queue order by id limit ?)", [DEAD_ROWS]);
  // Otherwise, PostgreSQL counts them within a second.
  await db.raw("select pg_stat_force_next_flush()");
  return { webhookId, [Symbol.asyncDispose]: () => snapshot.end() };
}

const options = { limit: 10, after: 0n, excluded: [] };

test("after a slow claim beside an open snapshot, claims read few of the dead rows", async () => {
  await using _queued = await queueBehindDeadRows();
  const claimant = await freshClaimant(db);
  const claims = new PendingClaims(db, new ClaimedWebhooks(), ALWAYS);
  const claim = async () => expect((await claims.claim(claimant, options)).deliveries).toHaveLength(10);
  const slow = await pagesOf(claim);
  // Reads the oldest pending deliveries.
  await claim();
  expect(await pagesOf(claim)).toBeLessThan(slow / 5);
});

test("beside an open snapshot, a claim does not read again what earlier claims took", async () => {
  const earlier = 5_000;
  await using _queued = await queueBehindDeadRows(earlier + 1_000);
  const claimant = await freshClaimant(db);
  const claims = new PendingClaims(db, new ClaimedWebhooks(), ALWAYS);
  await claims.claim(claimant, options);
  expect((await claims.claim(claimant, { ...options, limit: earlier })).touched).toBe(earlier);
  const claim = async () => expect((await claims.claim(claimant, options)).touched).toBe(10);
  // A claim that also reads the oldest deliveries reads more.
  await expect.poll(() => pagesOf(claim)).toBeLessThan(earlier / 50);
});

test("while there are many dead rows, no further slow claim is needed", async () => {
  await using _queued = await queueBehindDeadRows();
  const claimant = await freshClaimant(db);
  const kept = { ...ALWAYS.kept, minMs: 1 };
  const claims = new PendingClaims(db, new ClaimedWebhooks(), { ...ALWAYS, manyDeadRows: DEAD_ROWS, kept });
  const claim = async () => expect((await claims.claim(claimant, options)).deliveries).toHaveLength(10);
  const slow = await pagesOf(claim);
  await wait(2);
  // The oldest deliveries are read for the first time.
  expect(await pagesOf(claim)).toBeLessThan(slow / 2);
});

test("claims stay oldest first, and reach released deliveries and deliveries of other webhooks", async () => {
  await using queued = await queueBehindDeadRows();
  const claimant = await freshClaimant(db);
  const claims = new PendingClaims(db, new ClaimedWebhooks(), ALWAYS);
  const { deliveries: first } = await claims.claim(claimant, options);
  const { deliveries: second } = await claims.claim(claimant, options);
  const ids = [...first, ...second].map(({ id }) => id);
  expect(ids).toEqual(ids.toSorted());
  // Both are outside what the last read found.
  await release(db, claimant.workerId, first);
  const otherId = await queue(db, 1);
  const missing = new Set([...first.map(({ id }) => id), "another webhook's"]);
  await expect
    .poll(async () => {
      const { deliveries } = await claims.claim(claimant, options);
      for (const { id, webhook } of deliveries) {
        missing.delete(id);
        if (webhook.id === otherId) missing.delete("another webhook's");
        else expect(webhook.id).toBe(queued.webhookId);
      }
      return missing.size;
    })
    .toBe(0);
});

test("a claim that finds nothing says that there may be more, until it has read every webhook", async () => {
  await using _queued = await queueBehindDeadRows();
  const claimant = await freshClaimant(db);
  const claims = new PendingClaims(db, new ClaimedWebhooks(), ALWAYS);
  const all = { ...options, limit: 200 };
  await claims.claim(claimant, options);
  expect((await claims.claim(claimant, all)).deliveries).toHaveLength(90);
  await queue(db, 5);
  // The last read did not find its webhook.
  expect(await claims.claim(claimant, all)).toMatchObject({ touched: 0, limited: true });
  await expect.poll(async () => (await claims.claim(claimant, all)).touched).toBe(5);
  await expect.poll(async () => (await claims.claim(claimant, all)).limited).toBe(false);
});

test("if the oldest deliveries cannot be read, claims read the dead rows", async () => {
  await using queued = await queueBehindDeadRows();
  const claimant = await freshClaimant(db);
  const failing = new Proxy(db, {
    get(of, property) {
      if (property === "transaction") return () => Promise.reject(new Error("canceling statement"));
      const value = Reflect.get(of, property);
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
  const claims = new PendingClaims(failing, new ClaimedWebhooks(), ALWAYS);
  await claims.claim(claimant, options);
  const { deliveries } = await claims.claim(claimant, options);
  expect(deliveries.map(({ webhook }) => webhook.id)).toEqual(Array(10).fill(queued.webhookId));
});

test("excluded webhooks and those before the start are not visited", async () => {
  await using queued = await queueBehindDeadRows();
  const otherId = await queue(db, 100);
  const claimant = await freshClaimant(db);
  const claims = new PendingClaims(db, new ClaimedWebhooks(), ALWAYS);
  await claims.claim(claimant, options);
  const claimed = async (restriction: Partial<typeof options>) => {
    const { deliveries } = await claims.claim(claimant, { ...options, ...restriction });
    return new Set(deliveries.map(({ webhook }) => webhook.id));
  };
  expect(await claimed({ excluded: [queued.webhookId] as never })).toEqual(new Set([otherId]));
  expect(await claimed({ after: queued.webhookId })).toEqual(new Set([otherId]));
  expect(await claimed({})).toEqual(new Set([queued.webhookId, otherId]));
  expect(await claims.claim(claimant, { ...options, limit: 1 })).toMatchObject({ next: queued.webhookId });
});
