import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { openDatabases, rows } from "../../src/lib/pg/database.ts";
import { type Claimant, release } from "../../src/queue/claims.ts";
import { createPendingClaims } from "../../src/queue/pending-claims.ts";
import { ClaimedWebhooks } from "../../src/webhooks/claimed-webhooks.ts";
import { createTestDatabase } from "../support/database.ts";
import { freshClaimant, queue, queueEvents } from "./queue.ts";

const DEAD_ROWS = 20_000;
const PENDING = 100;
/** Every claim counts as slow. */
const ALWAYS = {
  slowClaimMs: 0,
  minDeadRows: 0,
  manyDeadRows: Number.POSITIVE_INFINITY,
  keptMs: 30_000,
};
/** The time after which the oldest deliveries are read again, in milliseconds. */
const READ_AGAIN_MS = 1_000;

const database = await createTestDatabase();
/** One connection, so that all of its reads are counted. */
const databases = openDatabases(database.url, {
  directUrl: undefined,
  poolSize: 1,
  preparedStatements: true,
  delivers: true,
});
const { db } = databases;
const snapshot = new pg.Client({ connectionString: database.url });
let webhookId: bigint;
let claimant: Claimant;

/** A webhook with pending deliveries, after many others that an open snapshot keeps. */
beforeAll(async () => {
  // An analysis that began before rows died would overwrite the number of dead rows.
  await db.raw("alter table queue set (autovacuum_enabled = off)");
  webhookId = await queue(db, DEAD_ROWS + PENDING);
  await snapshot.connect();
  await snapshot.query("begin isolation level repeatable read");
  await snapshot.query("select from queue limit 1");
  await db.raw("delete from queue where id in (select id from queue order by id limit ?)", [DEAD_ROWS]);
  // Otherwise, PostgreSQL counts them within a second.
  await db.raw("select pg_stat_force_next_flush()");
});
beforeEach(async () => {
  vi.useFakeTimers({ toFake: ["performance"] });
  await db("queue").whereNot({ webhook_id: webhookId }).delete();
  await db("queue").whereNotNull("claimed_by").update({ claimed_by: null, claims: 0 });
  claimant = await freshClaimant(db);
});
afterEach(() => {
  vi.useRealTimers();
});
afterAll(async () => {
  await snapshot.end();
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

/** Claims of a process. */
function claiming(when: Partial<typeof ALWAYS> = {}, on = db) {
  const claim = createPendingClaims(on, new ClaimedWebhooks(), { ...ALWAYS, ...when });
  return (options: { limit?: number; after?: bigint; excluded?: bigint[] } = {}) =>
    claim(claimant, { limit: 10, after: 0n, excluded: [], ...options });
}

test("after a slow claim beside an open snapshot, claims read few of the dead rows", async () => {
  const claim = claiming();
  const claimTen = async () => expect((await claim()).deliveries).toHaveLength(10);
  const slow = await pagesOf(claimTen);
  // Reads the oldest pending deliveries.
  await claimTen();
  expect(await pagesOf(claimTen)).toBeLessThan(slow / 5);
});

test("while there are many dead rows, no further slow claim is needed", async () => {
  const claim = claiming({ manyDeadRows: DEAD_ROWS, keptMs: 1 });
  const slow = await pagesOf(claim);
  vi.advanceTimersByTime(1);
  // The oldest deliveries are read for the first time.
  expect(await pagesOf(claim)).toBeLessThan(slow / 2);
});

test("claims stay oldest first, and reach released deliveries and deliveries of other webhooks", async () => {
  const claim = claiming();
  const { deliveries: first } = await claim();
  const { deliveries: second } = await claim();
  const ids = [...first, ...second].map(({ id }) => id);
  expect(ids).toEqual(ids.toSorted());
  // Both are outside what the last read found.
  await release(db, claimant.workerId, first);
  const other = await queue(db, 1);
  const { deliveries: third } = await claim();
  expect(third.every(({ id }) => !ids.includes(id))).toBe(true);
  vi.advanceTimersByTime(READ_AGAIN_MS);
  const { deliveries: fourth } = await claim({ limit: 20 });
  expect(fourth.filter(({ webhook }) => webhook.id === other)).toHaveLength(1);
  expect(fourth.slice(0, 10).map(({ id }) => id)).toEqual(ids.slice(0, 10));
});

test("a claim that finds nothing says that there may be more, until it has read every webhook", async () => {
  const claim = claiming();
  await claim();
  expect((await claim({ limit: 200 })).deliveries).toHaveLength(PENDING - 10);
  await queue(db, 5);
  // The last read did not find its webhook.
  expect(await claim()).toMatchObject({ touched: 0, laterMs: 0 });
  vi.advanceTimersByTime(READ_AGAIN_MS);
  expect((await claim()).touched).toBe(5);
  vi.advanceTimersByTime(READ_AGAIN_MS);
  expect((await claim()).laterMs).toBeNull();
});

test("if the oldest deliveries cannot be read, claims read the dead rows", async () => {
  const failing = new Proxy(db, {
    get(of, property) {
      if (property === "transaction") return () => Promise.reject(new Error("canceling statement"));
      const value = Reflect.get(of, property);
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
  const claim = claiming({}, failing);
  await claim();
  const { deliveries } = await claim();
  expect(deliveries.map(({ webhook }) => webhook.id)).toEqual(Array(10).fill(webhookId));
});

test("excluded webhooks and those before the start are not visited", async () => {
  const otherId = await queue(db, 50);
  const claim = claiming();
  await claim();
  const visited = async (options: Parameters<typeof claim>[0]) =>
    new Set((await claim(options)).deliveries.map(({ webhook }) => webhook.id));
  expect(await visited({ excluded: [webhookId] })).toEqual(new Set([otherId]));
  expect(await visited({ after: webhookId })).toEqual(new Set([otherId]));
  expect(await visited({})).toEqual(new Set([webhookId, otherId]));
  expect(await claim({ limit: 1 })).toMatchObject({ next: webhookId });
});

test("beside an open snapshot, a claim does not read again what earlier claims took", async () => {
  const earlier = 5_000;
  await queueEvents(db, [webhookId], earlier + 1_000);
  const claim = claiming();
  await claim();
  expect((await claim({ limit: earlier })).touched).toBe(earlier);
  expect(await pagesOf(async () => expect((await claim()).touched).toBe(10))).toBeLessThan(earlier / 50);
});
