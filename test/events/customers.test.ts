import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fanOutStep } from "../../src/events/fan-out.ts";
import { MAX_INLINE_RECIPIENTS, type Published, publishEvents } from "../../src/events/publish.ts";
import { type Databases, type Db, openDatabases, rows } from "../../src/lib/pg/database.ts";
import { openChangeFeed } from "../../src/queue/changes.ts";
import { raiseRevisions } from "../../src/webhooks/revisions.ts";
import { listWebhooks } from "../../src/webhooks/webhooks.ts";
import { undone } from "../schema/explained.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { anEvent } from "../support/new-event.ts";

const [CUSTOMERS, WEBHOOKS_EACH, OF_OPERATOR] = [2_000, 10, 5];
/** A customer with more webhooks than are queued while publishing. */
const [WIDE, OF_WIDE] = ["wide", MAX_INLINE_RECIPIENTS + 500];
/** PostgreSQL keeps the plan of a prepared statement after so many executions. */
const UNTIL_KEPT = 7;

/** Registers webhooks of one event type, as so many calls of as many owners would. */
async function register(db: Db, owner: string, owners: number, each: number): Promise<void> {
  await db.raw(
    `with owner as (select case when :owner = '' then null when :owners = 1 then :owner else :owner || n end as customer
        from generate_series(1, :owners::int) n),
      counted as (
        insert into processes as p (process, revision, live, customers_live)
        select 1, :each::int * count(*) filter (where customer is null), :each::int * count(*) filter (where customer is null),
          :each::int * count(customer) from owner
        on conflict (process) do update set revision = p.revision + excluded.revision, live = p.live + excluded.live,
          customers_live = p.customers_live + excluded.customers_live
      ),
      counted_customers as (
        insert into customer_processes (customer, process, revision, live)
        select customer, 1, :each::int, :each::int from owner where customer is not null
      )
      insert into webhooks (process, url, target_url, api_key_id, customer, secret, created_revision)
      select 1, url, url, gen_random_uuid(), customer, '', n
      from owner, generate_series(1, :each::int) n, lateral (select 'https://receiver.example/' || n as url) u`,
    { owner, owners, each },
  );
}

async function publish(db: Db, userId: string): Promise<Published> {
  const [published] = await publishEvents(db, [anEvent({ userId })]);
  return published as Published;
}

type History = [string, (db: Db) => Promise<void>];

const keepPlans = async (db: Db) => {
  for (let n = 0; n < UNTIL_KEPT; n += 1) {
    await publish(db, "nobody");
    await fanOutStep(db);
  }
};

/** What the planner knows when it makes the plans that it keeps. Nothing else is analysed. */
const HISTORIES: History[] = [
  ["of which no table was analysed", async () => {}],
  ["with plans that were made while all tables were empty", keepPlans],
  [
    "with plans that were made and statistics that were gathered while the operator alone had webhooks",
    async (db) => {
      await register(db, "", 1, OF_OPERATOR);
      await db.raw("analyze");
      await keepPlans(db);
    },
  ],
  [
    "with plans that were made and statistics that were gathered while one customer had all webhooks",
    async (db) => {
      await register(db, "first", 1, 5_000);
      await db.raw("analyze");
      await keepPlans(db);
    },
  ],
];

describe.each(HISTORIES)(
  "of 20,000 webhooks of 2,000 customers for one event type, %s,",
  (_what, prepare) => {
    let database: TestDatabase;
    let databases: Databases;
    let db: Db;

    beforeAll(async () => {
      database = await createTestDatabase();
      databases = openDatabases(database.url, {
        directUrl: undefined,
        poolSize: 1,
        preparedStatements: true,
        delivers: true,
      });
      db = databases.db;
      for (const table of ["webhooks", "processes", "customer_processes", "fan_out"])
        await db.raw(`alter table ${table} set (autovacuum_enabled = false)`);
      await prepare(db);
      await db.raw(
        "delete from webhooks; delete from processes; delete from customer_processes; delete from queue",
      );
      await register(db, "", 1, OF_OPERATOR);
      await register(db, "customer ", CUSTOMERS, WEBHOOKS_EACH);
      await register(db, WIDE, 1, OF_WIDE);
    });
    afterAll(async () => {
      await databases.close();
      await database.drop();
    });

    /** The rows of a table that a transaction has read so far, by an index or from end to end. */
    async function readIn(trx: Db, table: string): Promise<number> {
      const sql = `select (seq_tup_read + coalesce(idx_tup_fetch, 0))::int as n from pg_stat_xact_user_tables where relname = :table`;
      return (await rows<{ n: number }>(trx, sql, { table }))[0]?.n ?? 0;
    }

    /** The rows of a table that work reads. Nothing of the work stays. */
    async function readBy(table: string, work: (trx: Db) => Promise<unknown>, on = db): Promise<number> {
      let read = 0;
      await undone(on, async (trx) => {
        const before = await readIn(trx, table);
        await work(trx);
        read = (await readIn(trx, table)) - before;
      });
      return read;
    }

    test.each([
      ["a customer", "customer 7", WEBHOOKS_EACH + OF_OPERATOR],
      ["nobody", "nobody", OF_OPERATOR],
    ])("publishing for %s reads its recipients only", async (_whose, userId, recipients) => {
      for (let n = 0; n < UNTIL_KEPT; n += 1) {
        const publishing = async (trx: Db) => expect((await publish(trx, userId)).queued).toBe(recipients);
        expect(await readBy("webhooks", publishing)).toBe(recipients);
        expect(await readBy("customer_processes", publishing)).toBeLessThanOrEqual(1);
      }
    });

    test("publishing for many customers at once reads their recipients only, and those of the operator once", async () => {
      const events = Array.from({ length: 100 }, (_, n) => anEvent({ userId: `customer ${1 + (n % 50)}` }));
      const publishing = async (trx: Db) => {
        for (const published of await publishEvents(trx, events))
          expect(published).toMatchObject({ queued: WEBHOOKS_EACH + OF_OPERATOR });
      };
      expect(await readBy("webhooks", publishing)).toBe(50 * WEBHOOKS_EACH + OF_OPERATOR);
    });

    test("an event for more webhooks of a customer than are queued while publishing is left to the fan-out", () =>
      undone(db, async (trx) => {
        expect(await readBy("webhooks", (inner) => publish(inner, WIDE), trx)).toBeLessThanOrEqual(
          OF_OPERATOR,
        );
        expect((await publish(trx, WIDE)).queued).toBe(OF_WIDE + OF_OPERATOR);
        expect(await trx("queue").pluck("id")).toEqual([]);
      }));

    test("a step of the fan-out reads few webhooks beside those that it queues for", () =>
      undone(db, async (trx) => {
        const { eventId } = await publish(trx, WIDE);
        for (const queued of [1_000, OF_WIDE + OF_OPERATOR - 1_000]) {
          const before = await readIn(trx, "webhooks");
          expect(await fanOutStep(trx)).toMatchObject({ queued, missing: 0 });
          expect((await readIn(trx, "webhooks")) - before).toBeLessThan(2 * OF_WIDE);
        }
        const owners = await rows(
          trx,
          `select w.customer, count(*)::int as n from queue q join webhooks w on w.id = q.webhook_id
          where q.event_id = :eventId group by 1 order by 1`,
          { eventId },
        );
        expect(owners).toEqual([
          { customer: WIDE, n: OF_WIDE },
          { customer: null, n: OF_OPERATOR },
        ]);
      }));

    test("the operator's list reads its webhooks only", async () => {
      const listing = (trx: Db) => listWebhooks(trx, { after: 0n, limit: 100 });
      expect(await readBy("webhooks", listing)).toBeLessThanOrEqual(2 * OF_OPERATOR);
    });

    test("a look at what has changed reads what has changed only", async () => {
      const sql = `select pg_stat_clear_snapshot(), (select seq_tup_read + idx_tup_fetch from pg_stat_user_tables where relname = 'customer_processes') as n`;
      await db.raw("select pg_stat_force_next_flush()");
      const count = async () => Number((await db.raw(sql)).rows[0].n);
      // Transactions of other databases of the server count, too.
      const isOver =
        "select pg_snapshot_xmin(pg_current_snapshot()) > max(changed) as over from customer_processes";
      await expect.poll(async () => (await db.raw(isOver)).rows[0].over).toBe(true);
      const feed = await openChangeFeed(database.url, () => {});
      await feed.look();
      await raiseRevisions(db, [{ customer: "customer 7", process: 1 }]);
      await db.raw("select pg_stat_force_next_flush()");
      const before = await count();
      for (let n = 0; n < UNTIL_KEPT; n += 1) await feed.look();
      // Its session tells the statistics what it has read when it ends.
      await feed.close();
      const sessions = () =>
        db.raw(
          "select from pg_stat_activity where application_name = 'webhook-service-changes' and datname = current_database()",
        );
      await expect.poll(async () => (await sessions()).rowCount).toBe(0);
      expect((await count()) - before).toBeLessThan(100);
    });
  },
);
