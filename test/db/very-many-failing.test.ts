import { randomUUID } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import type { ClaimToken } from "../../src/db/claim-statement.ts";
import type { Db } from "../../src/db/database.ts";
import { claimGroup, claimPending, takeOver } from "../../src/db/delivery-claims.ts";
import { recordAttempts } from "../../src/db/delivery-results.ts";
import { assignGroups, beginPasses, groupStatuses } from "../../src/db/retry-groups.ts";
import { plansOf } from "./explained.ts";
import { ALL, freshToken, openQueueDatabase, queueMany, result } from "./queue.ts";

const FAILING = 5_000;
const AT_ONCE = 64;
const AT_ONCE_DUE = { initialDelayMs: 1, coefficient: 1 };

const db = await openQueueDatabase();
let pass: ClaimToken;
let group: number;
let members: number;

/** Very many webhooks with a delivery each that failed once, in groups; the planner has no statistics of them. */
beforeEach(async () => {
  await queueMany(db, { urlPrefix: "https://example.com/", webhooks: FAILING, events: 1 });
  const token = await freshToken(db);
  for (let after: bigint | null = 0n; after !== null; ) {
    const claimed = await claimPending(db, token, { ...ALL, after });
    for (let n = 0; n < claimed.deliveries.length; n += 200)
      await recordAttempts(
        db,
        claimed.deliveries.slice(n, n + 200).map((delivery) => result(delivery, token, 500)),
        AT_ONCE_DUE,
      );
    after = claimed.next;
  }
  const failing = await assignGroups(db, token.runId);
  group = failing[0]?.group ?? 0;
  members = failing.filter((webhook) => webhook.group === group).length;
  pass = { ...token, activity: randomUUID() };
  await beginPasses(db, [{ token: pass, group }]);
});

/** Pages that the query's statements look at, in memory or not. */
async function pagesOf(query: (db: Db) => Promise<unknown>): Promise<number> {
  const plans = await plansOf(db, query, ["analyze", "buffers"]);
  return plans.reduce(
    (pages, plan) => pages + (plan["Shared Hit Blocks"] ?? 0) + (plan["Shared Read Blocks"] ?? 0),
    0,
  );
}

describe("with very many failing webhooks in a run, and statistics from before them", () => {
  const claim = { level: 1, limit: AT_ONCE, excluded: [] };
  /** With the pages that index, table, and what a claim or a record changes take, and as many again. */
  const queries: [string, (db: Db) => Promise<unknown>, () => number][] = [
    ["claiming in a group", (trx) => claimGroup(trx, pass, { ...claim, group }), () => 40 * members],
    [
      "looking at where a group stands",
      (trx) => groupStatuses(trx, [{ runId: pass.runId, group }]),
      () => 10 * members,
    ],
    [
      "recording what a group was answered",
      async (trx) => {
        const { deliveries } = await claimGroup(db, pass, { ...claim, group });
        expect(deliveries).toHaveLength(AT_ONCE);
        await recordAttempts(
          trx,
          deliveries.map((delivery) => result(delivery, pass, 500)),
          AT_ONCE_DUE,
        );
      },
      () => 20 * AT_ONCE,
    ],
    [
      "taking over what a dead worker had claimed",
      async (trx) => {
        await claimGroup(db, pass, { ...claim, group });
        await takeOver(trx, { ...pass, attempt: 2 });
      },
      // Every open row of the run, once.
      () => 2 * FAILING,
    ],
  ];

  test.each(queries)("%s reads no more than its own", async (_what, query, bound) => {
    const pages = await pagesOf(query);
    expect(pages).toBeGreaterThan(0);
    expect(pages).toBeLessThan(bound());
  });
});
