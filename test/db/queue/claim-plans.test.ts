import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import { type Db, openDatabase, rows } from "../../../src/db/database.ts";
import { claimGroup, claimPending } from "../../../src/db/queue/claims.ts";
import { assignGroups } from "../../../src/db/queue/retry-groups.ts";
import { createTestDatabase, empty } from "../../support/database.ts";
import { freshClaimant, queueMany, record } from "./queue.ts";

const CLAIMS = 16;
/** PostgreSQL plans a prepared statement for its values this often, before it compares the costs. */
const FIRST_PLANS = 5;

const database = await createTestDatabase();
/** A new connection for each test, without prepared statements. */
let db: Db;
beforeEach(async () => {
  db = openDatabase(database.url, { max: 1, indexesOnly: true });
  await empty(db);
});
afterEach(() => db.destroy());
afterAll(() => database.drop());

test.each([
  { state: "empty", webhooks: 0, events: 0 },
  { state: "with a few deliveries, never analysed", webhooks: 3, events: 3 },
  { state: "with many of one webhook", webhooks: 1, events: 20_000 },
  { state: "with many of 20 webhooks", webhooks: 20, events: 1_000 },
  { state: "with some of each of many webhooks", webhooks: 600, events: 4 },
])("claims from a queue $state are not planned each time", async ({ webhooks, events }) => {
  const ids = await queueMany(db, { urlPrefix: "https://example.com/", webhooks, events });
  if (webhooks * events > 1_000) await db.raw("analyze");
  const claimant = await freshClaimant(db);
  for (let n = 0; n < CLAIMS; n += 1) {
    const excluded = n % 2 === 0 ? [] : ids.slice(0, 18);
    const { deliveries } = await claimPending(db, claimant, { limit: 200, after: BigInt(n), excluded });
    await record(db, deliveries.slice(0, 20), 500);
  }
  await assignGroups(db, claimant.runId);
  for (let n = 0; n < CLAIMS; n += 1) await claimGroup(db, claimant, { group: 1, limit: 4, excluded: [] });
  const plans = await rows<{ name: string; custom: bigint }>(
    db,
    "select name, custom_plans as custom from pg_prepared_statements where name like 'claim%' order by name",
  );
  expect(plans).toEqual([
    { name: expect.stringMatching(/^claim_group/), custom: BigInt(FIRST_PLANS) },
    { name: expect.stringMatching(/^claim_pending/), custom: BigInt(FIRST_PLANS) },
  ]);
});
