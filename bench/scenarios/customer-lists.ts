import { type Client, createClient } from "@connectrpc/connect";
import { CustomerService } from "../../gen/webhook/v1/customer_pb.ts";
import { count as countRows, type Db } from "../../src/lib/pg/database.ts";
import { ensurePartitions } from "../../src/schema/partitions.ts";
import { DAYS, idOf } from "../parts/delivery-history.ts";
import type { Measurement, Scenario, Target } from "../parts/scenario.ts";
import { seedOwners } from "../parts/seeding.ts";
import { openStage, type Stage } from "../parts/stage.ts";
import { figuresOf, type Kind, transportTo } from "../parts/timed-calls.ts";

const CALLS = 100;
const PAGE_SIZE = 50;
const WEBHOOKS_EACH = 10;
const EVENTS_EACH = 10;
/** The number of events that one statement stores. */
const CHUNK = 100_000;
/** The service's default. */
const RETENTION_DAYS = 30;
const DAY_MS = 86_400_000;

const P99: Target = { atMost: 500 };
const LISTS = [
  "first page",
  "middle page",
  "200 customers",
  "beginning of a user id",
  "part of a name",
  "unknown text",
] as const;
/** Without events all customers have a setting; later on, events name as many others. */
const STATES = ["without events", "with events"] as const;

/** Lists of customers. A search is all pages up to the first with a customer, or the last. */
export const customerLists: Scenario = {
  name: "customer-lists",
  what: `lists and searches of customers with ${WEBHOOKS_EACH} webhooks each, then with ${EVENTS_EACH} events each beside as many that only events name: median and 99th percentile`,
  count: { full: 100_000, small: 5_000 },
  targets: Object.fromEntries(STATES.flatMap((state) => LISTS.map((name) => [`${name} ${state} p99`, P99]))),
  comparisons: [],
  async measure(bench, count) {
    await using stage = await openStage(bench, { MAX_WEBHOOKS: "10000000" });
    const { db } = stage;
    await seedOwners(db, count, WEBHOOKS_EACH, "'tenant-' || n");
    await db.raw(
      "insert into customers (id, display_name) select 'tenant-' || n, 'Shop No. ' || n from generate_series(1, :count::int) n",
      { count },
    );
    await db.raw("vacuum (analyze) webhooks, customers, customer_processes");
    const measured: Measurement[] = [];
    for (const state of STATES) {
      if (state === "with events") await seedEvents(stage, 2 * count);
      for (const { name, ...kind } of await kindsOf(stage, count)) {
        bench.stopping.throwIfAborted();
        const stated = { ...kind, name: `${name} ${state}` };
        measured.push(...(await figuresOf(stated, Math.min(CALLS, count / 50), { p50: 0.5, p99: 0.99 })));
      }
    }
    return measured;
  },
};

/** Stores events of a week, of as many users in turn. */
async function seedEvents({ bench, db }: Stage, users: number): Promise<void> {
  const until = new Date();
  const days = Array.from({ length: DAYS + 1 }, (_, n) => new Date(until.getTime() - n * DAY_MS));
  await ensurePartitions(db, RETENTION_DAYS, days);
  const all = users * EVENTS_EACH;
  for (let from = 0; from < all; from += CHUNK) {
    bench.stopping.throwIfAborted();
    const to = Math.min(all, from + CHUNK) - 1;
    await countRows(
      db,
      `insert into events (id, api_key_id, idempotency_key, process, user_id, occurred, recipients, payload)
        select ${idOf("n")}, gen_random_uuid(), n, 1, 'tenant-' || 1 + n % :users::int, at, 0, '{}'
        from generate_series(:from::int, :to::int) n,
          lateral (select :until::timestamptz - (:all::int - n) * (interval '1 day' * :days::int / :all::int) as at) m`,
      { users, from, to, until, all, days: DAYS },
    );
    bench.show.count("storing events", to + 1, all);
  }
  await db.raw("vacuum (analyze) events");
}

async function kindsOf({ db, ...stage }: Stage, count: number): Promise<Kind[]> {
  const client = createClient(CustomerService, transportTo({ db, ...stage }));
  const middle = await middleToken(db, count);
  const some = (n: number) => 1 + ((n * 7919) % count);
  const calls: Record<(typeof LISTS)[number], (n: number) => Promise<number>> = {
    "first page": () => found(client, { pageSize: PAGE_SIZE }),
    "middle page": () => found(client, { pageSize: PAGE_SIZE, pageToken: middle }),
    "200 customers": () => found(client, { pageSize: 200 }),
    "beginning of a user id": (n) => found(client, { pageSize: PAGE_SIZE, search: `tenant-${some(n)}` }),
    "part of a name": (n) => found(client, { pageSize: PAGE_SIZE, search: `no. ${some(n)}` }),
    "unknown text": () => found(client, { pageSize: PAGE_SIZE, search: "nobody" }),
  };
  for (const name of LISTS)
    if ((await calls[name](1)) > 0 === (name === "unknown text"))
      throw new Error(`${name}: the list found something else than there is`);
  return LISTS.map((name) => ({ name, call: calls[name] }));
}

/** The token of a page in the middle of the list. */
async function middleToken(db: Db, count: number): Promise<string> {
  const { rows } = await db.raw("select id from customers order by id offset ? limit 1", [count / 2]);
  return Buffer.from(rows[0].id).toString("base64url");
}

/** Reads pages up to the first with a customer, or the last. Returns the number of customers on it. */
async function found(
  client: Client<typeof CustomerService>,
  request: Parameters<typeof client.listCustomers>[0],
): Promise<number> {
  for (let pageToken = request.pageToken ?? ""; ; ) {
    const page = await client.listCustomers({ ...request, pageToken });
    if (page.customers.length > 0 || page.nextPageToken === "") return page.customers.length;
    pageToken = page.nextPageToken;
  }
}
