import { randomUUID } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { ClaimToken } from "../../src/db/claim-statement.ts";
import { type Db, openDatabase } from "../../src/db/database.ts";
import { listDeliveries } from "../../src/db/deliveries.ts";
import { claimGroup, claimPending, takeOver } from "../../src/db/delivery-claims.ts";
import { handOver, release } from "../../src/db/delivery-release.ts";
import { recordAttempts } from "../../src/db/delivery-results.ts";
import { loadContents } from "../../src/db/event-contents.ts";
import { deleteExpired } from "../../src/db/retention.ts";
import { assignGroups, beginPasses, groupStatuses } from "../../src/db/retry-groups.ts";
import { closeRun } from "../../src/db/runs.ts";
import type { Scope } from "../../src/db/scope.ts";
import { readHistory, readOverview, webhookStats } from "../../src/db/stats.ts";
import { createTestDatabase, type TestDatabase } from "../support/database.ts";
import { type PlanNode, plansOf } from "./explained.ts";
import { freshToken, queue, result, SPACING } from "./queue.ts";

/** Tables that grow with every event. */
const LARGE = /^(deliveries|attempts|events)$/;

let database: TestDatabase;
let db: Db;
let token: ClaimToken;
let claimedIds: string[];
let webhookId: bigint;
/** The scope of a key of an installed app that has one of the webhooks. */
const app: Scope = { installedAppId: randomUUID(), processes: [], permissions: [] };

beforeAll(async () => {
  database = await createTestDatabase();
  db = openDatabase(database.url, { max: 3 });
  for (let webhooks = 0; webhooks < 20; webhooks += 1) webhookId = await queue(db, 1_000);
  token = await freshToken(db);
  const { deliveries } = await claimPending(db, token, { limit: 200, after: 0n, excluded: [] });
  claimedIds = deliveries.map(({ id }) => id);
  const failed = deliveries.slice(0, 100).map((delivery) => result(delivery, token, 500));
  await recordAttempts(db, failed, SPACING);
  await assignGroups(db, token.runId);
  // As many as the deliveries of a while: a small table is read from end to end with good reason.
  await db.raw(
    "insert into attempts (delivery_id, number, started, duration_ms) select new_delivery_id(), 1, now(), 5 from generate_series(1, 20000)",
  );
  await db("installed_apps").insert({ id: app.installedAppId, name: "app" });
  await db("webhooks").where("id", String(webhookId)).update({ installed_app_id: app.installedAppId });
  await db.raw("analyze");
});
afterAll(async () => {
  await db.destroy();
  await database.drop();
});

/** The tables that the query's own statements would read from end to end, by PostgreSQL's plans for them. */
async function scannedTables(query: (db: Db) => Promise<unknown>): Promise<string[]> {
  const plans = await plansOf(db, query);
  expect(plans.length).toBeGreaterThan(0);
  const scanned: string[] = [];
  for (const plan of plans) collect(plan, scanned);
  return scanned;
}

function collect(node: PlanNode, scanned: string[]): void {
  const table = node["Relation Name"] ?? "";
  if (node["Node Type"] === "Seq Scan" && LARGE.test(table)) scanned.push(table);
  for (const child of node.Plans ?? []) collect(child, scanned);
}

describe("no table that grows is read from end to end", () => {
  const queries: [string, (db: Db) => Promise<unknown>][] = [
    [
      "claiming pending deliveries",
      (trx) => claimPending(trx, token, { limit: 500, after: 0n, excluded: [] }),
    ],
    ["taking over", (trx) => takeOver(trx, { ...token, attempt: 2 })],
    [
      "claiming a retry group",
      async (trx) => {
        const pass = { ...token, activity: randomUUID() };
        await beginPasses(trx, [{ token: pass, group: 1 }]);
        await claimGroup(trx, pass, { group: 1, level: 1, limit: 64, excluded: [] });
      },
    ],
    ["handing over", (trx) => handOver(trx, token, [webhookId], 100)],
    ["giving back", (trx) => release(trx, token, claimedIds.slice(150), "pending")],
    [
      "recording attempts",
      (trx) =>
        recordAttempts(
          trx,
          claimedIds.slice(100, 150).map((id) => result(id, token, 200)),
          SPACING,
        ),
    ],
    [
      "loading what events carry",
      async (trx) =>
        loadContents(
          trx,
          (await trx("events").limit(50)).map(({ id }) => id),
        ),
    ],
    ["listing the undelivered", (trx) => assignGroups(trx, token.runId)],
    ["looking at a group", (trx) => groupStatuses(trx, [{ runId: token.runId, group: 1 }])],
    ["closing a run", (trx) => closeRun(trx, token.runId)],
    ["listing the newest", (trx) => listDeliveries(trx, "everything", {}, 101)],
    [
      "listing a webhook's failed ones",
      (trx) => listDeliveries(trx, "everything", { webhookId, states: ["failed"] }, 101),
    ],
    ["listing an event type's", (trx) => listDeliveries(trx, "everything", { process: 1 }, 101)],
    [
      "going a page back, of all and of an event type",
      async (trx) => {
        await listDeliveries(trx, "everything", { after: claimedIds[0] as string }, 101);
        await listDeliveries(trx, "everything", { process: 1, after: claimedIds[0] as string }, 101);
      },
    ],
    [
      "listing what failed or was cancelled within an hour",
      (trx) =>
        listDeliveries(
          trx,
          "everything",
          { states: ["failed", "cancelled"], from: new Date(Date.now() - 3_600_000) },
          101,
        ),
    ],
    ["listing an app's newest", (trx) => listDeliveries(trx, app, {}, 101)],
    [
      "listing an app's failed ones, of a webhook and of an event type",
      async (trx) => {
        await listDeliveries(trx, app, { webhookId, states: ["failed"] }, 101);
        await listDeliveries(trx, app, { process: 1, states: ["failed"] }, 101);
      },
    ],
    [
      "listing an app's deliveries of an event",
      (trx) => listDeliveries(trx, app, { eventId: randomUUID() }, 101),
    ],
    ["an app's overview", (trx) => readOverview(trx, app)],
    ["an app's history", (trx) => readHistory(trx, app, 24, new Date())],
    ["how an app's webhooks did", (trx) => webhookStats(trx, app)],
    ["deleting what has expired", (trx) => deleteExpired(trx, new Date(Date.now() - 3_600_000))],
  ];

  test.each(queries)("by %s", async (_what, query) => {
    expect(await scannedTables(query)).toEqual([]);
  });

  test("and the test would notice", async () => {
    expect(
      await scannedTables(
        (trx) => trx.raw("select count(*) from deliveries where reason = ?", ["x"]) as never,
      ),
    ).toEqual(["deliveries"]);
  });
});
