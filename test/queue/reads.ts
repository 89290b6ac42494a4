import { randomUUID } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Databases, type Db, openDatabases, rows } from "../../src/lib/pg/database.ts";
import type { Claimant, ClaimedDelivery } from "../../src/queue/claims.ts";
import { loadContents } from "../../src/queue/event-contents.ts";
import { recordAttempts } from "../../src/queue/results.ts";
import { adoptRetries, assignGroups, MAX_ADOPTED_PER_STEP } from "../../src/queue/retry-groups.ts";
import { undone } from "../schema/explained.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { claim, claimRetries, freshClaimant, queueMany, result, SPACING, TABLES } from "./queue.ts";

const [WEBHOOKS, EVENTS] = [200, 60];
const CLAIMED = 200;
/** What may be read for each delivery that is claimed. To read the queue once would be 60 rows for each of these. */
const [ROWS_EACH, PAGES_EACH] = [20, 60];
/** What may be read for each retry that is listed and adopted. To join all webhooks with each would be 200 rows. */
const ADOPTED_ROWS_EACH = 5;
/** PostgreSQL plans a prepared statement for its values this often, before it compares the costs. */
const FIRST_PLANS = 5;
/** Executions after which it keeps the plan that it makes then. */
const UNTIL_KEPT = FIRST_PLANS + 2;
/**
 * Times that many executions, after which plans are kept. What other tests define in the same server can invalidate a plan, and PostgreSQL
 * then compares the cost of the new one with those of the first plans, for fewer rows.
 */
const MOST_TRIES = 10;

let database: TestDatabase;
let databases: Databases | undefined;
/** The pool of a worker, with one connection, as new as its plans. */
let db: Db;
let retrying: Claimant;

/** Opens the pool; closes the one before, with its plans. */
async function openPool(): Promise<void> {
  await databases?.close();
  databases = openDatabases(database.url, {
    directUrl: undefined,
    poolSize: 1,
    preparedStatements: true,
    delivers: true,
  });
  db = databases.db;
}

/** What work reads: live rows, from end to end or by an index, and pages of all tables and indexes. Nothing of the work stays. */
async function readBy(work: (trx: Db) => Promise<unknown>): Promise<{ rows: number; pages: number }> {
  const one = async (at: Db, sql: string) => (await rows<{ n: number }>(at, sql))[0]?.n ?? 0;
  const pages = async () => {
    await db.raw("select pg_stat_force_next_flush()");
    return one(
      db,
      "select (blks_hit + blks_read)::int as n from pg_stat_database where datname = current_database()",
    );
  };
  const rowsIn = (trx: Db) =>
    one(trx, "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int as n from pg_stat_xact_user_tables");
  const before = await pages();
  let read = 0;
  await undone(db, async (trx) => {
    const rowsBefore = await rowsIn(trx);
    await work(trx);
    read = (await rowsIn(trx)) - rowsBefore;
  });
  return { rows: read, pages: (await pages()) - before };
}

/** Reads the payloads of claimed deliveries and records their results, of which every tenth is a failure. */
async function attempt(trx: Db, deliveries: readonly ClaimedDelivery[]): Promise<number> {
  const eventIds = [...new Set(deliveries.map(({ eventId }) => eventId))];
  await loadContents(trx, eventIds, { maxBytes: 1_000_000, alone: true });
  const results = deliveries.map((each, n) => result(each, n % 10 === 0 ? 500 : 200));
  return (await recordAttempts(trx, results, SPACING)).size;
}

const deliver = async (trx: Db) => attempt(trx, await claim(trx, undefined, CLAIMED));

async function retry(trx: Db): Promise<number> {
  return attempt(trx, await claimRetries(trx, retrying, CLAIMED));
}

/** Lists what has failed in a run, and has another run adopt it. Answers the number of retries. */
async function listAndAdopt(trx: Db): Promise<number> {
  const listed = await assignGroups(trx, retrying.runId);
  expect(listed.length).toBeGreaterThanOrEqual(WEBHOOKS);
  await trx("runs").where({ id: retrying.runId }).update({ closed: trx.fn.now() });
  const { runId } = await freshClaimant(trx);
  return adoptRetries(trx, runId);
}

const fill = (webhooks = WEBHOOKS, events = EVENTS) =>
  queueMany(db, { urlPrefix: `https://example.com/${randomUUID()}/`, webhooks, events });

/** What waits for its first attempt waits for a retry from then on, all in one group. */
async function failOnce(): Promise<void> {
  await db.raw(
    `insert into retries (id, event_id, webhook_id, run_id, attempts, round_start, due)
      select id, event_id, webhook_id, ?, 1, 0, now() from queue`,
    [retrying.runId],
  );
  await db.raw(
    "insert into run_groups select distinct run_id, webhook_id, 1 from retries on conflict do nothing",
  );
  await db.raw("truncate queue");
}

/** Executes the statements so often that their plans are kept. */
async function keepPlans(): Promise<void> {
  for (let n = 0; n < UNTIL_KEPT; n += 1) {
    await readBy(deliver);
    await readBy(retry);
  }
}

const unplanned = () => Promise.resolve();

const analysed = (prepare: () => Promise<unknown>) => async () => {
  await prepare();
  await db.raw("analyze");
  await keepPlans();
};

type History = [string, () => Promise<unknown>];

/** What the planner knows of the tables, and when it makes the plans that it keeps. Statistics stay, so it knows more each time. */
export const HISTORIES: Record<"planless" | "few" | "many", readonly History[]> = {
  planless: [
    ["of which no table was ever analysed", unplanned],
    ["which were planned for while all tables were empty", keepPlans],
    [
      "which were vacuumed and planned for after as many had been delivered",
      async () => {
        await fill();
        await db.raw("delete from queue");
        await db.raw("vacuum (truncate off) queue");
        await keepPlans();
      },
    ],
  ],
  few: [
    ["which were analysed and planned for while all tables were empty", analysed(unplanned)],
    [
      "which were analysed and planned for while there was one webhook with a few",
      analysed(() => fill(1, 50)),
    ],
  ],
  many: [
    [
      "which were analysed and planned for while twenty other webhooks alone had 2,500 each, which stay",
      analysed(async () => {
        await fill(20, 2_500);
        // In the order of publishing, so that the primary key is the cheaper index to read many rows by.
        await db.raw("cluster queue using queue_pkey");
      }),
    ],
    ["which were analysed and planned for while as many waited", analysed(fill)],
  ],
};

/** Defines the tests of a file. */
export function testReads(histories: readonly History[]): void {
  beforeAll(async () => {
    database = await createTestDatabase();
    await openPool();
    // What is analysed, and when, is the test's. Analysing any table of a statement makes PostgreSQL plan it anew.
    const tables = await rows<{ name: string }>(
      db,
      `select oid::regclass::text as name from pg_class
        where relnamespace = 'public'::regnamespace and relkind = 'r' order by oid`,
    );
    for (const { name } of tables) await db.raw(`alter table ${name} set (autovacuum_enabled = false)`);
  });
  afterAll(async () => {
    await databases?.close();
    await database.drop();
  });

  describe.each(histories)("of 12,000 deliveries for 200 webhooks, %s,", (_what, prepare) => {
    const isPlanned = prepare !== unplanned;

    async function expectLittleRead(work: (trx: Db) => Promise<number>): Promise<void> {
      for (let n = 0; n < (isPlanned ? 2 : UNTIL_KEPT); n += 1) {
        const read = await readBy(async (trx) => expect(await work(trx)).toBe(CLAIMED));
        expect(read.rows).toBeGreaterThan(CLAIMED);
        expect(read.rows).toBeLessThan(ROWS_EACH * CLAIMED);
        expect(read.pages).toBeLessThan(PAGES_EACH * CLAIMED);
      }
    }

    async function expectPlansKept(statement: string, work: (trx: Db) => Promise<number>): Promise<void> {
      const planned = () =>
        rows(
          db,
          "select custom_plans::int as n from pg_prepared_statements where starts_with(name, :statement)",
          { statement },
        );
      let [before, after]: unknown[] = [undefined, await planned()];
      for (let tries = 0; !isDeepStrictEqual(before, after); tries += 1) {
        expect(tries, "plans that are made each time").toBeLessThan(MOST_TRIES);
        before = after;
        for (let n = 0; n < UNTIL_KEPT; n += 1) await readBy(work);
        after = await planned();
      }
      expect(after).toEqual([{ n: expect.any(Number) }]);
    }

    // Once for all tests, because each rolls back its work. The second uses the plans of the first, or opens a new pool.
    beforeAll(async () => {
      await openPool();
      await db.raw(`truncate ${TABLES} cascade`);
      retrying = await freshClaimant(db);
      await prepare();
      await fill();
    });

    test("claiming, loading and recording 200 reads little more than these, and is not planned each time", async () => {
      await expectLittleRead(deliver);
      await expectPlansKept("claim_pending", deliver);
    });

    test("claiming, loading and recording 200 retries reads little more than these, and is not planned each time", async () => {
      if (!isPlanned) await openPool();
      await failOnce();
      await expectLittleRead(retry);
      await expectPlansKept("claim_due", retry);
    });

    test("listing 200 failing webhooks and adopting their retries reads each a few times", async () => {
      await failOnce();
      const [all] = await rows<{ n: number }>(db, "select count(*)::int as n from retries");
      const retries = all?.n ?? 0;
      const read = await readBy(async (trx) => expect(await listAndAdopt(trx)).toBe(MAX_ADOPTED_PER_STEP));
      expect(read.rows).toBeGreaterThan(retries);
      expect(read.rows).toBeLessThan(ADOPTED_ROWS_EACH * retries);
    });
  });
}
